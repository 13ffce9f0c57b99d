-- Seeds that once broke a rule, kept for ever.

return { 2631, 4342, 100613, 108176, 111129, 119708, 316915 }
