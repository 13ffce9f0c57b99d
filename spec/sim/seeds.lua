-- Seeds that once broke a rule, kept for ever.

return { 2631, 4342, 75741, 100613, 108176, 111129, 119708, 175590, 316915 }
