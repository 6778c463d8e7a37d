-- Reads of a request's body what routing asks for: JSON as RFC 8259 has it, but that raw control characters in a
-- string are let through. A server refuses those; here it would take a look at every byte.
--
-- A reader of our own, because NGINX and `route explain` must agree on every body, and because it builds
-- nothing that no rule looks at: a prompt of a megabyte is passed over and not copied. lua-cjson takes numbers such
-- as `1.`, and whatever stands behind a NUL, and is in no base install of Python.
--
-- Pure: no NGINX in here.

local ffi = require("ffi")

local byte, find, sub = string.byte, string.find, string.sub
local cast, ffi_string = ffi.cast, ffi.string
local concat = table.concat
local floor, huge = math.floor, math.huge

local DEPTH = 64
local VALUES = 10000 -- what is walked over in one body but numbers of a list, so that no body holds a worker for long
local TEXT = 16384 -- bytes of text that content matchers look at
local NEAR = 64 -- bytes looked at one by one before the next escape or quote is looked for by memchr

local M = {}

local left -- values that may still be walked over
local complex -- whether that, or the depth, was too little
local slash -- a backslash with none between it and the place that was last looked at

local function blank(text, at)
  local c = byte(text, at)
  while c == 32 or c == 10 or c == 13 or c == 9 do
    at = at + 1
    c = byte(text, at)
  end
  return at, c
end

local bytes = ffi.typeof("const uint8_t *")
local ESCAPES = ffi.new("uint8_t[256]") -- what a letter behind a backslash stands for; 0 for what may not be there
for letter, meant in pairs({ ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }) do
  ESCAPES[byte(letter)] = byte(meant)
end

local HEX = ffi.new("uint8_t[256]") -- 1 for a hexadecimal digit
for digit in ("0123456789abcdefABCDEF"):gmatch(".") do
  HEX[byte(digit)] = 1
end

-- From the first backslash of a string, `at`, to behind its closing quote; nil: no string. Each escape and each
-- byte near one costs a step of a compiled loop; where escapes are far apart, memchr finds the next one.
local function escaped_end(text, at, quote)
  local p, size = cast(bytes, text) - 1, #text -- places count from 1
  while at <= size do
    local c = p[at]
    while c == 92 do
      local e = p[at + 1] -- behind the last byte of a Lua string is a 0
      if ESCAPES[e] ~= 0 then
        at = at + 2
      elseif e == 117 and at + 5 <= size and HEX[p[at + 2]] + HEX[p[at + 3]] + HEX[p[at + 4]] + HEX[p[at + 5]] == 4 then
        at = at + 6
      else
        return nil
      end
      c = p[at]
    end
    local far = at + NEAR
    while c ~= 92 and c ~= 34 and at < far do
      at = at + 1
      c = p[at]
    end
    if c == 34 then
      slash = 0
      return at <= size and at + 1 or nil
    elseif c ~= 92 and at <= size then
      if quote < at then
        quote = find(text, '"', at, true)
        if not quote then
          return nil
        end
      end
      slash = find(text, "\\", at, true) or huge
      if quote < slash then
        return quote + 1
      end
      at = slash
    end
  end
  return nil
end

-- From behind the opening quote to behind the closing one; also, whether there are escapes. nil: no string.
-- Quotes and backslashes are looked for by memchr; none is passed twice.
local function string_end(text, at)
  local quote = find(text, '"', at, true)
  if not quote then
    return nil
  end
  if slash < at then
    slash = find(text, "\\", at, true) or huge
  end
  if quote < slash then
    return quote + 1, false
  end
  return escaped_end(text, slash, quote), true
end

local function digits_end(text, at)
  local from = at
  local c = byte(text, at)
  while c and c >= 48 and c <= 57 do
    at = at + 1
    c = byte(text, at)
  end
  if at > from then
    return at, c
  end
end

local function number_end(text, at)
  local c = byte(text, at)
  if c == 45 then
    at = at + 1
    c = byte(text, at)
  end
  if c == 48 then
    at = at + 1
    c = byte(text, at)
  else
    at, c = digits_end(text, at)
  end
  if at and c == 46 then
    at, c = digits_end(text, at + 1)
  end
  if at and (c == 69 or c == 101) then
    c = byte(text, at + 1)
    at = digits_end(text, (c == 43 or c == 45) and at + 2 or at + 1)
  end
  return at
end

local object, array

-- From the first byte `c` of a value, at `at`, to behind it; nil: no value.
local function value_end(text, at, c, depth)
  if c == 34 then
    return (string_end(text, at + 1))
  elseif c == 123 then
    return object(text, at, depth)
  elseif c == 91 then
    return array(text, at, depth)
  elseif c == 116 then
    return sub(text, at, at + 3) == "true" and at + 4 or nil
  elseif c == 102 then
    return sub(text, at, at + 4) == "false" and at + 5 or nil
  elseif c == 110 then
    return sub(text, at, at + 3) == "null" and at + 4 or nil
  else
    return number_end(text, at)
  end
end

local said_bytes = ffi.new("uint8_t[?]", TEXT + 4) -- what is said is never longer than how it is written

local function hex_value(c)
  return c <= 57 and c - 48 or c % 32 + 9
end

-- The 16 bits behind a \u at `at`; nil where the text was cut there.
local function code_at(p, at, size)
  if at + 4 > size then
    return nil
  end
  return hex_value(p[at]) * 4096 + hex_value(p[at + 1]) * 256 + hex_value(p[at + 2]) * 16 + hex_value(p[at + 3])
end

-- Writes the UTF-8 of `code`, and returns the place behind it.
local function put(to, code)
  local out = said_bytes
  if code < 0x80 then
    out[to] = code
    return to + 1
  elseif code < 0x800 then
    out[to], out[to + 1] = 0xC0 + floor(code / 0x40), 0x80 + code % 0x40
    return to + 2
  elseif code < 0x10000 then
    out[to], out[to + 1] = 0xE0 + floor(code / 0x1000), 0x80 + floor(code / 0x40) % 0x40
    out[to + 2] = 0x80 + code % 0x40
    return to + 3
  end
  out[to], out[to + 1] = 0xF0 + floor(code / 0x40000), 0x80 + floor(code / 0x1000) % 0x40
  out[to + 2], out[to + 3] = 0x80 + floor(code / 0x40) % 0x40, 0x80 + code % 0x40
  return to + 4
end

-- What a string with escapes says, at most TEXT bytes of it. Half a pair of surrogates is written as its three
-- bytes. What stands behind a cut in the middle of an escape is left out.
local function said(raw)
  local p, size = cast(bytes, raw), math.min(#raw, TEXT)
  local at, to = 0, 0
  while at < size do
    local c = p[at]
    if c ~= 92 then
      said_bytes[to] = c
      at, to = at + 1, to + 1
    elseif p[at + 1] ~= 117 then
      if at + 1 >= size then
        break
      end
      said_bytes[to] = ESCAPES[p[at + 1]]
      at, to = at + 2, to + 1
    else
      local code = code_at(p, at + 2, size)
      if not code then
        break
      end
      at = at + 6
      if code >= 0xD800 and code < 0xDC00 and at + 6 <= size and p[at] == 92 and p[at + 1] == 117 then
        local low = code_at(p, at + 2, size)
        if low >= 0xDC00 and low < 0xE000 then
          code, at = 0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00, at + 6
        end
      end
      to = put(to, code)
    end
  end
  return ffi_string(said_bytes, to)
end

-- Whether one more value may be walked over, at this depth.
local function affords(depth)
  left = left - 1
  if left < 0 or depth > DEPTH then
    complex = true
    return false
  end
  return true
end

-- Walks over the object at `at`, and hands each member to `member(into, name, text, at, c, depth)`, which
-- returns the place behind its value.
function object(text, at, depth, member, into)
  local c
  at, c = blank(text, at + 1)
  if c == 125 then
    return at + 1
  end
  while c == 34 do
    local from = at + 1
    local behind, escaped = string_end(text, from)
    if not behind then
      return nil
    end
    at, c = blank(text, behind)
    if c ~= 58 then
      return nil
    end
    at, c = blank(text, at + 1)
    if not affords(depth) then
      return nil
    elseif member then
      local name = sub(text, from, behind - 2)
      at = member(into, escaped and said(name) or name, text, at, c, depth + 1)
    else
      at = value_end(text, at, c, depth + 1)
    end
    if not at then
      return nil
    end
    at, c = blank(text, at)
    if c == 125 then
      return at + 1
    elseif c ~= 44 then
      return nil
    end
    at, c = blank(text, at + 1)
  end
end

-- Passes over whole numbers of a list, such as the tokens of a prompt, as far as they go: to the first that is
-- written in another way, or the last.
local function over_numbers(text, at)
  local p = cast(bytes, text) - 1
  local from, first = at, p[at]
  while first >= 49 and first <= 57 do
    local c = p[at + 1]
    at = at + 1
    while c >= 48 and c <= 57 do
      at = at + 1
      c = p[at]
    end
    if c ~= 44 then
      return from
    end
    at = at + 1
    if p[at] == 32 then
      at = at + 1
    end
    from, first = at, p[at]
  end
  return from
end

-- Likewise, `element(into, text, at, c, depth)`.
function array(text, at, depth, element, into)
  local c
  at, c = blank(text, at + 1)
  if c == 93 then
    return at + 1
  end
  while true do
    if c and c >= 49 and c <= 57 then
      at, c = blank(text, over_numbers(text, at)) -- no rule looks at a number of a list
    end
    if not affords(depth) then
      return nil
    elseif element then
      at = element(into, text, at, c, depth + 1)
    else
      at = value_end(text, at, c, depth + 1)
    end
    if not at then
      return nil
    end
    at, c = blank(text, at)
    if c == 93 then
      return at + 1
    elseif c ~= 44 then
      return nil
    end
    at, c = blank(text, at + 1)
  end
end

-- A string's place in the text, to be read once it is known to be the one that counts.
local function span(text, at)
  local behind, escaped = string_end(text, at + 1)
  if behind then
    return behind, { at + 1, behind - 2, escaped }
  end
end

-- A part of a message's content: {"type": "text", "text": …}.
local function of_part(part, name, text, at, c, depth)
  if c == 34 and (name == "text" or name == "type") then
    local behind, found = span(text, at)
    part[name] = found
    return behind
  elseif name == "text" or name == "type" then
    part[name] = nil
  end
  return value_end(text, at, c, depth)
end

local function part_of_content(spans, text, at, c, depth)
  if c ~= 123 then
    return value_end(text, at, c, depth)
  end
  local part = {}
  local behind = object(text, at, depth, of_part, part)
  if part.text and part.type and sub(text, part.type[1], part.type[2]) == "text" then
    spans[#spans + 1] = part.text
  end
  return behind
end

local function of_message(message, name, text, at, c, depth)
  if name == "role" then
    if c == 34 then
      local behind, found = span(text, at)
      message.role = found and sub(text, found[1], found[2])
      return behind
    end
    message.role = nil
  elseif name == "content" then
    message.spans = {}
    if c == 34 then
      local behind, found = span(text, at)
      message.spans[1] = found
      return behind
    elseif c == 91 then
      return array(text, at, depth, part_of_content, message.spans)
    end
  end
  return value_end(text, at, c, depth)
end

local function message_of_many(question, text, at, c, depth)
  if c ~= 123 then
    return value_end(text, at, c, depth)
  end
  local message = {}
  local behind = object(text, at, depth, of_message, message)
  if message.role == "user" then
    question.spans = message.spans or {}
  end
  return behind
end

-- A list of prompts: each string, and each list of tokens, is answered by itself. A list of numbers is one.
local function prompt_of_many(question, text, at, c, depth)
  if c == 34 then
    local behind, found = span(text, at)
    question.spans[#question.spans + 1] = found
    question.prompts = question.prompts + 1
    return behind
  elseif c == 91 then
    question.prompts = question.prompts + 1
  end
  return value_end(text, at, c, depth)
end

local function of_question(question, name, text, at, c, depth)
  if name == "messages" then
    question.spans = {}
    if c == 91 then
      return array(text, at, depth, message_of_many, question)
    end
  elseif name == "prompt" then
    question.spans, question.prompts = {}, 0
    if c == 91 then
      return array(text, at, depth, prompt_of_many, question)
    elseif c == 34 then
      local behind, found = span(text, at)
      question.spans[1] = found
      return behind
    end
  end
  local behind = value_end(text, at, c, depth)
  if behind and question.wanted[name] then
    local value -- null is as if it were not there; of what is given twice, the last counts
    if c == 116 or c == 102 then
      value = c == 116
    elseif c == 34 then
      value = behind - at > 2 and "text" or ""
    elseif c == 123 or c == 91 then
      local _, first = blank(text, at + 1)
      value = { empty = first == c + 2 } -- the brackets' codes are two apart
    elseif c ~= 110 then
      value = tonumber(sub(text, at, behind - 1))
    end
    question.fields[name] = value
  end
  return behind
end

-- Reads the object `text`. Returns
--   fields   of the names in `wanted`: numbers and booleans; of a string, "" or "text"; of a list or object,
--            {empty = …}
--   prompts  how many prompts it asks to have answered, at least 1
--   spans    where the last message of the user, or the prompt, is; for `content`
-- or nil and the reason: "not-json", "not-an-object", "too-complex".
function M.read(text, wanted)
  left, complex, slash = VALUES, false, 0
  local question = { fields = {}, prompts = 1, spans = {}, wanted = wanted }
  local at, c = blank(text, 1)
  local behind
  if c == 123 then
    behind = object(text, at, 1, of_question, question)
  else
    behind = value_end(text, at, c, 1)
  end
  if complex then
    return nil, "too-complex"
  elseif not behind or blank(text, behind) <= #text then
    return nil, "not-json"
  elseif c ~= 123 then
    return nil, "not-an-object"
  end
  if question.prompts < 1 then
    question.prompts = 1
  end
  return question
end

-- The text that content matchers look at, its parts a line each; its first 64 KiB.
function M.content(text, question)
  local parts, room = {}, TEXT
  for index, found in ipairs(question.spans) do
    if room <= 0 then
      break
    end
    local to = math.min(found[2], found[1] + room - 1)
    local raw = sub(text, found[1], to)
    parts[index] = found[3] and said(raw) or raw
    room = room - #raw
  end
  return concat(parts, "\n")
end

return M
