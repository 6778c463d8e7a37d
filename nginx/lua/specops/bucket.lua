-- Which of 10,000 buckets a caller is in: CRC-32 (IEEE 802.3, as zlib has it) of a key that stays the same.

local bit = require("bit")
local band, bxor, rshift = bit.band, bit.bxor, bit.rshift
local byte = string.byte

local BUCKETS = 10000

local TABLE = {}
for index = 0, 255 do
  local value = index
  for _ = 1, 8 do
    value = band(value, 1) == 1 and bxor(rshift(value, 1), 0xEDB88320) or rshift(value, 1)
  end
  TABLE[index] = value
end

return function(key)
  local value = -1
  for at = 1, #key do
    value = bxor(rshift(value, 8), TABLE[band(bxor(value, byte(key, at)), 0xFF)])
  end
  value = bxor(value, -1)
  return (value < 0 and value + 0x100000000 or value) % BUCKETS
end
