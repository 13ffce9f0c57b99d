-- Seeds that once broke a rule, kept for ever.

return {
}
