-- The only definition of the version. The Makefile, the rock, the packages and the man page read
-- it.
return "1.0.0-rc1"
