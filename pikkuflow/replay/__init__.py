"""The only place where workflow functions are called: turns calls into commands and commands into recorded results (design 5)."""
