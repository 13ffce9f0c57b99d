-- Seeds that once broke a rule, kept for ever: of plans without what extras.lua adds, and of whole plans.

return {
  base = { 2631, 4342, 75741, 100613, 108176, 111129, 119708, 175590, 316915 },
  whole = { 77, 1212, 2573, 3724, 4246, 13040, 19566, 23018, 35998, 48074, 206077, 231429, 487037 },
}
