-- The version. This is its only place: the Makefile, the rock, the packages and the man page take
-- it from here.
return "1.0.0-rc1"
