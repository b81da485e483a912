"""What the whole product asks of its servers, counted by them: noise cannot touch these figures."""
