-- What NGINX calls in each phase of a request. What is decided is in decide.lua; here it is carried out.
--
-- Between phases a request is known by NGINX's variables $specops_…: ngx.ctx does not outlive the redirect to
-- the standard pool. What runs for each request is written such that LuaJIT compiles it: no closures, no patterns.

local decide = require("specops.decide")
local effect = require("specops.effect")
local in_flight = require("specops.in_flight")
local metrics = require("specops.metrics")
local rules = require("specops.rules")
local switch = require("specops.switch")

local byte, find, sub = string.byte, string.find, string.sub
local get_method, get_body, read_body = ngx.req.get_method, ngx.req.get_body_data, ngx.req.read_body
local now, start_time, exiting = ngx.now, ngx.req.start_time, ngx.worker.exiting

local STREAM = "text/event-stream"

local M = {}

local variables = {} -- by the name of a header

local function header(name)
  local variable = variables[name]
  if not variable then
    variable = "http_" .. name:gsub("-", "_")
    variables[name] = variable
  end
  return ngx.var[variable]
end

local function address()
  return ngx.var.remote_addr
end

local function matches(pattern, text)
  local found, _, why = ngx.re.find(text, pattern, "ijo")
  if why then
    ngx.log(ngx.ERR, "specops: ", pattern, " could not be matched: ", why)
  end
  return found ~= nil
end

-- A body that is larger than client_body_buffer_size is in a file. Also, whether it could not be read.
local function from_file()
  local path = ngx.req.get_body_file()
  if not path then
    return nil, false
  end
  local file, why = io.open(path, "rb")
  if not file then
    ngx.log(ngx.ERR, "specops: a body could not be read: ", why)
    return nil, true
  end
  local data = file:read("*a")
  file:close()
  return data, false
end

local function refuse_path()
  ngx.status = 404
  ngx.header.content_type = "application/json"
  ngx.say('{"error": {"message": "this router does not serve this path", "type": "not_found", "code": 404}}')
  return ngx.exit(404)
end

-- The decision, and the request counted in.
local function decided(request)
  local decision = decide.decide(request, rules, {
    percent = switch.percent(),
    in_flight = in_flight.of_speculative(),
    now = now(),
  })
  local pool, weight = decision.pool, decision.weight
  if pool == "speculative" then
    local had = in_flight.add_speculative(weight) - weight
    -- Another worker may have taken the last place since it was looked at.
    if decision.reason ~= "override" and decide.spills(weight, had, decision.limit) then
      in_flight.add_speculative(-weight)
      pool, decision.reason = "standard", "in-flight"
      decision.group = rules.windows and decision.group
    end
  end
  if pool == "standard" then
    in_flight.add_standard(weight)
  end
  local var = ngx.var
  var.specops_class, var.specops_pool, var.specops_reason = decision.class, pool, decision.reason
  if decision.group then
    var.specops_group, var.specops_load = decision.group, effect.load(pool)
  end
  metrics.decided(decision.class, pool, decision.reason)
  if weight ~= 1 then
    var.specops_weight = weight
  end
  return pool
end

-- access of the speculative pool's location, where every request comes first.
function M.route()
  local var = ngx.var
  local uri = var.request_uri
  local query = find(uri, "?", 1, true)
  local request = {
    method = get_method(),
    path = query and sub(uri, 1, query - 1) or uri,
    header = header,
    address = address,
    id = var.specops_request_id,
    trusted = var.specops_trusted == "1",
    matches = matches,
  }
  if decide.reads(request) then
    read_body()
    request.body = get_body()
    if not request.body then
      request.body, request.unreadable = from_file()
    end
  end
  local pool = decided(request)
  if pool == "standard" then
    return ngx.exec("@standard")
  elseif pool == "none" then
    return refuse_path()
  end
end

-- Whether the last server that was tried got nothing of the request: no connection was made. "0", or "512, 0".
local function was_not_sent(sent)
  local last = byte(sent, -2)
  return byte(sent, -1) == 48 and not (last and last >= 48 and last <= 57)
end

-- access of @failover and @unreached, where a request comes that the speculative pool did not answer.
function M.fail_over()
  local var = ngx.var
  -- An address has a colon; the name of the pool stands there where all its servers are spared.
  if var.specops_reconnected == "" and find(var.upstream_addr, ":", 1, true) and was_not_sent(var.upstream_bytes_sent) then
    return ngx.exec("@reconnect")
  end
  local weight = tonumber(var.specops_weight)
  in_flight.add_speculative(-weight)
  in_flight.add_standard(weight)
end

-- body_filter: when the first piece of a body came; of a request of the live effect also the last two pieces, since the
-- number of tokens is at the end.
function M.on_body()
  local ctx = ngx.ctx
  if not ctx.first_byte then
    ctx.first_byte = now()
    ctx.has_group = ngx.var.specops_group ~= ""
  end
  if ctx.has_group then
    local piece = ngx.arg[1]
    if piece ~= "" then
      ctx.before_last, ctx.last = ctx.last, piece
    end
  end
end

local function publish()
  in_flight.publish()
  metrics.publish()
end

-- log: counts the request out.
function M.done()
  local var = ngx.var
  local pool = var.specops_pool
  if pool == "" then
    return -- refused before it was decided on: too large, too many, or no request at all
  end
  local served = var.specops_served
  if pool == "none" then
    served = "none"
  elseif served == "speculative" then
    in_flight.add_speculative(-tonumber(var.specops_weight))
  else
    in_flight.add_standard(-tonumber(var.specops_weight))
  end
  local header_time = var.upstream_header_time
  if not header_time or byte(header_time, -1) == 45 then -- "-": no server answered
    served = "none"
  end
  local ctx = ngx.ctx
  local started, first_byte = start_time(), ctx.first_byte
  local duration = now() - started
  metrics.count(var.specops_class, pool, served, ngx.status, duration, first_byte and first_byte - started)
  local group = var.specops_group
  if group ~= "" then
    local streamed = first_byte and find(var.sent_http_content_type or "", STREAM, 1, true)
    local tail = (ctx.before_last or "") .. (ctx.last or "")
    local load, answered = tonumber(var.specops_load), served == pool
    effect.count(
      group, var.specops_class, load, ngx.status, answered, duration, streamed and first_byte - started, tail
    )
  end
  if exiting() then
    publish() -- a worker that only ends its requests has no timers
  end
end

-- init_worker.
function M.start()
  in_flight.join()
  switch.follow_file()
  local first = ngx.worker.id() == 0
  assert(ngx.timer.every(1, function()
    publish()
    if first then
      in_flight.bury_the_dead()
      switch.follow_file()
    end
  end))
end

return M
