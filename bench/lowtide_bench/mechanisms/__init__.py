"""`lowtide bench tracking`: one flow whose progress is told by the tracker, by markers, or not at all."""
