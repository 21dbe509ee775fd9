"""Time: moments, durations, and what clocks of zones show."""
