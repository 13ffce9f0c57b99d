-- Seeds that once broke a rule, kept for ever.

return { 1986, 2631, 3747 }
