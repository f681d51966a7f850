"""Station 4: facts become work and views."""
