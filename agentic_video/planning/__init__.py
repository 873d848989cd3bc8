"""What a run needs before it is booked: GPU memory, host memory, bytes moved and seconds, from its config alone."""
