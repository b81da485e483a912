"""The verbs: one message or call each. Load one snapshot, decide with pure code, write once, send after the commit (design 5)."""
