-- Where a request goes, and why. NGINX runs this file, and so does `route explain`.
--
-- Pure: what it needs of its host is in `request`, what it goes by is in `rules` (rules.lua, which is rendered),
-- and what changes while the router runs is in `state`.
--
--   request.method, request.path    as the client sent them; no query
--   request.header(name)            value of a header, its name in lower case; nil where there is none
--   request.address()               the client's
--   request.trusted                 whether it may choose the pool
--   request.body                    its bytes; only asked for where `reads(request, rules)`
--   request.unreadable              whether there are, and its host could not get at them
--   request.id                      its id; nil: it is in no group of the live effect
--   request.matches(pattern, text)  whether a regular expression, regardless of ASCII case, is found in the text
--   state.percent                   of what the rules allow on the speculative pool, the share that goes there
--   state.now                       seconds since the epoch: the holdout is drawn anew each day, or by windows of time
--   state.in_flight                 of the speculative pool without this request, each counted `weight` times
--
-- decide() returns
--   pool      "speculative" or "standard"; "none": the router answers 404 itself
--   class     the traffic class by name; "default" where none matches; "other" for what generates no text
--   reason    one of the words below
--   about     the parameter that it is about, where it is
--   observed  the number that decided: tokens asked for, the temperature, a bucket, requests in flight
--   weight    how many sequences it asks for
--   group     of the live effect: "speculative", or "holdout", which chance keeps on the standard pool; "burn-in" at
--             the begin of a random window; nil where not both pools could have had the request
--   limit     how many its class may find in flight on the speculative pool, itself included

local body = require("specops.body")
local bucket = require("specops.bucket")

local byte, find, lower, sub = string.byte, string.find, string.lower, string.sub
local floor = math.floor
local huge = math.huge

local bucket_count = 10000 -- that bucket.lua has
local DAY_S = 86400

local M = {}

local GENERATES = { ["/v1/chat/completions"] = true, ["/v1/completions"] = true }
local POOLS = { speculative = true, standard = true }

-- Whether the body decides.
function M.reads(request)
  return request.method == "POST" and GENERATES[request.path] or false
end

local function served(path, paths)
  if find(path, "..", 1, true) or find(lower(path), "%2e", 1, true) then
    return false -- another path by the time that a server has resolved it
  end
  for _, known in ipairs(paths) do
    if path == known or byte(known, -1) == 47 and sub(path, 1, #known) == known then
      return true
    end
  end
  return false
end

local function is_whole(value)
  return value == nil or type(value) == "number" and value % 1 == 0 and value > -huge and value < huge
end

-- The parameter that is not what it must be, so that the engine refuses the request; or nil.
local function mistaken(fields)
  if not is_whole(fields.max_completion_tokens) then
    return "max_completion_tokens"
  elseif not is_whole(fields.max_tokens) then
    return "max_tokens"
  elseif not is_whole(fields.n) then
    return "n"
  elseif not is_whole(fields.best_of) then
    return "best_of"
  elseif fields.temperature ~= nil and type(fields.temperature) ~= "number" then
    return "temperature"
  elseif fields.stream ~= nil and type(fields.stream) ~= "boolean" then
    return "stream"
  end
end

local function is_set(value)
  if type(value) == "table" then
    return not value.empty
  end
  return value ~= nil and value ~= 0 and value ~= false and value ~= ""
end

local function text_of(request, question)
  local text = request.text
  if not text then
    text = question and body.content(request.body, question) or ""
    request.text = text
  end
  return text
end

local function has_headers(headers, request)
  for _, one in ipairs(headers) do
    if request.header(one.name) ~= one.value then
      return false
    end
  end
  return true
end

local function has_one(parts, text)
  text = lower(text)
  for _, part in ipairs(parts) do
    if find(text, part, 1, true) then
      return true
    end
  end
  return false
end

local function is_of(class, request, question)
  if class.path and class.path ~= request.path then
    return false
  end
  if class.headers and not has_headers(class.headers, request) then
    return false
  end
  if class.contains and not has_one(class.contains, text_of(request, question)) then
    return false
  end
  return not class.content or request.matches(class.content, text_of(request, question))
end

local function classify(request, question, rules)
  for _, class in ipairs(rules.classes) do
    if is_of(class, request, question) then
      return class
    end
  end
  return rules.default
end

-- What the request itself says, whatever the state: pool, reason, about, observed.
local function by_rule(request, fields, class, rules)
  local wrong = mistaken(fields)
  if wrong then
    return "standard", "type", wrong
  end
  if not rules.speculate.value then
    return "standard", "not-deployed"
  end
  if not class.speculate.value then
    return "standard", "class"
  end
  for _, parameter in ipairs(rules.unsupported) do
    if is_set(fields[parameter.name]) then
      return "standard", "parameter", parameter.name
    end
  end
  local temperature, streams = fields.temperature, fields.stream
  if temperature and temperature > rules.max_temperature.value then
    return "standard", "temperature", nil, temperature
  end
  local tokens = fields.max_completion_tokens or fields.max_tokens or rules.unsized[request.path]
  if tokens and tokens < rules.min_tokens.value then
    return "standard", "short", nil, tokens
  end
  if tokens and not streams and tokens < rules.min_tokens_unstreamed.value then
    return "standard", "short-unstreamed", nil, tokens
  end
  if tokens and tokens >= rules.long_tokens.value then
    return "speculative", "long", nil, tokens
  elseif temperature == 0 then
    return "speculative", "greedy"
  elseif streams then
    return "speculative", "streaming"
  end
  return rules.otherwise.value, "otherwise", nil, tokens
end

local WEIGHT = 10000 -- at most: sums stay exact, whatever a request asks for

local function weight_of(fields, prompts)
  local n, best_of = fields.n, fields.best_of
  local each = 1
  if n and is_whole(n) and n > each then
    each = n
  end
  if best_of and is_whole(best_of) and best_of > each then
    each = best_of
  end
  return math.min(each * prompts, WEIGHT)
end

-- Whether so many more are too many for the speculative pool beside those that it has.
function M.spills(weight, in_flight, limit)
  return in_flight + weight > limit
end

-- The reason for which the switch keeps a request that the rules allow off the speculative pool, and what was
-- observed; or nil.
local function switched_off(request, rules, state)
  if state.percent <= 0 then
    return "switch"
  elseif state.percent < 100 then
    local key = rules.canary_key and request.header(rules.canary_key)
    key = key or request.header("authorization") or request.address()
    local at = bucket(key)
    if at >= state.percent * 100 then
      return "canary", at
    end
  end
end

-- The group of the random window at `now`, and whether it has just begun: answers of the one before may still run.
--
-- Of each `block` consecutive windows one is the holdout's, drawn by a hash of the block's number. So all routers have
-- the same schedule, also after a restart, and each block has both groups.
local function window_at(now, windows)
  local window = floor(now / windows.seconds)
  local block = floor(window / windows.block)
  local held = floor(bucket("window:" .. block) * windows.block / bucket_count)
  local group = window % windows.block == held and "holdout" or "speculative"
  return group, now % windows.seconds < windows.burn_in
end

-- The group of an eligible request, and the bucket that it was drawn by.
local function group_of(request, rules, state)
  local share = rules.holdout.value
  if share <= 0 or not request.id then
    return nil
  end
  local drawn = bucket(floor(state.now / DAY_S) .. ":" .. request.id)
  return drawn < share * bucket_count and "holdout" or "speculative", drawn
end

function M.decide(request, rules, state)
  if not GENERATES[request.path] and not served(request.path, rules.paths) then
    return { pool = "none", class = "other", reason = "path", weight = 1 }
  end
  local chosen = request.trusted and request.header("x-specops-pool")
  chosen = POOLS[chosen] and chosen
  local decision = { pool = "standard", class = "other", weight = 1 }
  if not GENERATES[request.path] then
    decision.reason = "path"
  elseif request.method ~= "POST" then
    decision.reason = "method"
  else
    local question, fault
    if (request.header("content-encoding") or "identity") ~= "identity" then
      fault = "encoded"
    elseif request.unreadable then
      fault = "unreadable"
    else
      question, fault = body.read(request.body or "", rules.wanted)
    end
    local class = classify(request, question, rules)
    decision.class = class.name or "default"
    decision.limit = (class.max_in_flight or rules.max_in_flight).value
    if question then
      decision.weight = weight_of(question.fields, question.prompts)
      decision.pool, decision.reason, decision.about, decision.observed =
        by_rule(request, question.fields, class, rules)
    else
      decision.reason = fault
    end
  end
  if chosen then
    decision.pool, decision.reason, decision.about, decision.observed = chosen, "override", nil, nil
    if chosen == "speculative" and state.percent <= 0 then
      decision.pool, decision.reason = "standard", "switch" -- all standard means all
    end
  elseif decision.pool == "speculative" then
    local why, observed = switched_off(request, rules, state)
    local windows = not why and rules.windows
    if windows then
      local group, is_burn_in = window_at(state.now, windows)
      -- A request without a free place is of its window's group, too: without speculation it would be.
      decision.group = is_burn_in and "burn-in" or group
      why = group == "holdout" and group or nil
    end
    if not why and M.spills(decision.weight, state.in_flight, decision.limit) then
      why, observed = "in-flight", state.in_flight
    end
    if not why and not windows then
      decision.group, observed = group_of(request, rules, state)
      why = decision.group == "holdout" and decision.group or nil
    end
    if why then
      decision.pool, decision.reason, decision.observed = "standard", why, observed
    end
  end
  return decision
end

return M
