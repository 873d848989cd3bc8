"""Rows of data files, read and checked, and the data set that verl loads."""
