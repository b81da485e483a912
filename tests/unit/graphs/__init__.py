"""Graph workflows on the real engine, in memory."""
