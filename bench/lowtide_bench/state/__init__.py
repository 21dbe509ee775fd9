"""`lowtide bench state`: a host whose state is larger than its memory."""
