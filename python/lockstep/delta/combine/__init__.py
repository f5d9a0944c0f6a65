"""How commits of one table become one, and how they are put behind what others committed."""
