--#fragment
-- The owners of holdfast's clients: <uuid of version 8>:<number>. A shared owner is another text.
local OURS = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+%.?%d*$'
