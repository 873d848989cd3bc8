"""When something happens in a video: intervals, answers that are intervals, their metrics, and looks at evidence."""
