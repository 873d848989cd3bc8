import pickle

from agentic_video.utils.errors import PluginTypeError, must_return


def test_what_must_be_returned_is_said_and_can_be_sent_to_another_process() -> None:
    error = must_return("Moments.parse", "Calls, Answer or Illegal", "Calls")
    assert str(error) == "Moments.parse must return Calls, Answer or Illegal, got str"
    sent = pickle.loads(pickle.dumps(error))
    assert type(sent) is PluginTypeError and str(sent) == str(error)
