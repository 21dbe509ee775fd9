"""The tracker's process: started, watched, replaced."""
