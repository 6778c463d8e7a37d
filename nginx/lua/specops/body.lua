-- Reads of a request's body what routing asks for: JSON as RFC 8259 has it, but that raw control characters in a
-- string are let through. A server refuses those; here it would take a look at every byte.
--
-- A reader of our own, because NGINX and `route explain` must agree on every body, and because it builds
-- nothing that no rule looks at: a prompt of a megabyte is passed over and not copied. lua-cjson takes numbers such
-- as `1.`, and whatever stands behind a NUL, and is in no base install of Python.
--
-- Pure: no NGINX in here.

local byte, char, find, gsub, sub = string.byte, string.char, string.find, string.gsub, string.sub
local concat = table.concat
local floor, huge = math.floor, math.huge

local DEPTH = 64
local VALUES = 100000 -- what is walked over in one body, so that no body holds a worker for long
local TEXT = 65536 -- bytes of text that content matchers look at

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

local function is_hex(c)
  return c and (c >= 48 and c <= 57 or c >= 65 and c <= 70 or c >= 97 and c <= 102)
end

local MEANT = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }
local ESCAPES = {} -- by the byte behind the backslash; \u apart
for letter, meant in pairs(MEANT) do
  ESCAPES[byte(letter)] = meant
end

-- From behind the opening quote to behind the closing one; also, whether there are escapes. nil: no string.
-- Quotes and backslashes are looked for by memchr; none is passed twice.
local function string_end(text, at)
  local quote = find(text, '"', at, true)
  local escaped = false
  while quote do
    if slash < at then
      slash = find(text, "\\", at, true) or huge
    end
    if quote < slash then
      return quote + 1, escaped
    end
    escaped = true
    local e = byte(text, slash + 1)
    if e == 117 then
      local place = slash + 2
      for digit = place, place + 3 do
        if not is_hex(byte(text, digit)) then
          return nil
        end
      end
      at = slash + 6
    elseif ESCAPES[e] then
      at = slash + 2
    else
      return nil
    end
    if quote < at then
      quote = find(text, '"', at, true)
    end
  end
  return nil
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

local function utf8(code)
  if code < 0x80 then
    return char(code)
  elseif code < 0x800 then
    return char(0xC0 + floor(code / 0x40), 0x80 + code % 0x40)
  elseif code < 0x10000 then
    return char(0xE0 + floor(code / 0x1000), 0x80 + floor(code / 0x40) % 0x40, 0x80 + code % 0x40)
  end
  return char(
    0xF0 + floor(code / 0x40000),
    0x80 + floor(code / 0x1000) % 0x40,
    0x80 + floor(code / 0x40) % 0x40,
    0x80 + code % 0x40
  )
end

local function one_of_a_pair(a, b, c, d)
  local high = 0xD000 + (byte(a) - 0x80) * 0x40 + byte(b) - 0x80
  local low = 0xD000 + (byte(c) - 0x80) * 0x40 + byte(d) - 0x80
  return utf8(0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00)
end

local function unescape(letter, hex)
  if letter ~= "u" then
    return ESCAPES[byte(letter)] .. hex
  end
  return #hex == 4 and utf8(tonumber(hex, 16)) or "" -- shorter: the text was cut there
end

-- What a string with escapes says. Half a pair of surrogates is written as its three bytes.
local function said(raw)
  raw = gsub(raw, '\\(["\\/bfnrtu])(%x?%x?%x?%x?)', unescape)
  if find(raw, "\237[\160-\175]") then
    raw = gsub(raw, "\237([\160-\175])([\128-\191])\237([\176-\191])([\128-\191])", one_of_a_pair)
  end
  return raw
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

-- Likewise, `element(into, text, at, c, depth)`.
function array(text, at, depth, element, into)
  local c
  at, c = blank(text, at + 1)
  if c == 93 then
    return at + 1
  end
  while true do
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
