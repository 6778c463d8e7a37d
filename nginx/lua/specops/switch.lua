-- One number: of what the rules allow on the speculative pool, the share that goes there. 0: all is standard.
--
-- It is in shared memory, which a reload keeps, and in a file, which a restart keeps and which programs on this
-- machine may write as well. The file counts when what is in it changes.

local body = require("specops.body")
local rules = require("specops.rules")

local state = ngx.shared.specops_state

local FIELD = "speculative_percent"
local WANTED = { [FIELD] = true }

local M = {}

local path = ngx.config.prefix() .. "switch.json"

local function parsed(text)
  local question = body.read(text, WANTED)
  local percent = question and question.fields[FIELD]
  if type(percent) == "number" and percent >= 0 and percent <= 100 then
    return percent
  end
end

local function written(percent, more)
  return string.format('{"%s": %.14g%s}\n', FIELD, percent, more or "")
end

local function read_file()
  local file = io.open(path, "rb")
  if not file then
    return nil
  end
  local text = file:read("*a")
  file:close()
  return text
end

-- Whether it could be kept, or why not.
local function keep(text)
  local new = path .. "." .. ngx.worker.pid()
  local file, why = io.open(new, "wb")
  if not file then
    return nil, why
  end
  local done
  done, why = file:write(text)
  file:close()
  if done then
    done, why = os.rename(new, path)
  end
  return done, why
end

function M.percent()
  return state:get("percent") or rules.speculative_percent
end

-- Takes over what the file has, where that is not what it had when it was last looked at.
function M.follow_file()
  local known = state:get("file") -- before the file is read: what is put meanwhile is not taken back by what it replaces
  local text = read_file()
  if not text or text == known then
    return
  end
  state:set("file", text)
  local percent = parsed(text)
  if percent then
    state:set("percent", percent)
    ngx.log(ngx.NOTICE, "specops: speculative_percent is ", percent, ", from ", path)
  else
    ngx.log(ngx.ERR, "specops: ", path, ' is no {"', FIELD, '": 0 to 100}, and is not followed')
  end
end

-- As soon as it is decided it holds, whether or not it can be kept; returns whether it was.
local function set(percent)
  local text = written(percent)
  state:set("percent", percent)
  local kept, why = keep(text)
  if kept then
    state:set("file", text)
  else
    ngx.log(ngx.ERR, "specops: the switch holds until the next restart only: ", why)
  end
  ngx.log(ngx.NOTICE, "specops: speculative_percent is ", percent, ", from ", ngx.var.remote_addr)
  return kept
end

local function refuse(status, why)
  ngx.status = status
  ngx.say('{"error": "', why, '"}')
end

local function same(given, token)
  return ngx.sha1_bin(given) == ngx.sha1_bin(token) -- as long whichever byte differs
end

-- The admin listener's /specops/switch. Where it is not loopback alone that reaches it, a PUT needs the token.
function M.answer(needs_token)
  ngx.header.content_type = "application/json"
  local method = ngx.req.get_method()
  if method == "PUT" then
    local token = os.getenv("SPECOPS_ROUTER_TOKEN") or ""
    if needs_token and token == "" then
      return refuse(403, "SPECOPS_ROUTER_TOKEN is not set where NGINX runs, and this listener needs it")
    elseif token ~= "" and not same(ngx.var.http_authorization or "", "Bearer " .. token) then
      return refuse(401, "the bearer token is not that of SPECOPS_ROUTER_TOKEN")
    end
    ngx.req.read_body()
    local percent = parsed(ngx.req.get_body_data() or "")
    if not percent then
      return refuse(400, "expected {'" .. FIELD .. "': a number from 0 to 100}")
    end
    return ngx.print(written(percent, not set(percent) and ', "kept": false' or nil))
  elseif method ~= "GET" then
    ngx.header.allow = "GET, PUT"
    return refuse(405, "GET or PUT")
  end
  ngx.print(written(M.percent()))
end

return M
