"""What every room may need: files of long jobs, environment variables, devices."""
