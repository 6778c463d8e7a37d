-- One number: of what the rules allow on the speculative pool, the share that goes there. 0: all is standard.
--
-- It is in shared memory, which a reload keeps, and in a file, which a restart keeps and which programs on this
-- machine may write as well. The file counts when what is in it changes, and where nobody else may have written it:
-- it belongs to the worker's user, to root, or to who owns the folder, and others may not write to it.

local bit = require("bit")
local ffi = require("ffi")

local body = require("specops.body")
local rules = require("specops.rules")

local state = ngx.shared.specops_state

-- statx, since its structure is the same on every machine.
ffi.cdef([[
typedef struct {
  uint32_t mask, blksize;
  uint64_t attributes;
  uint32_t nlink, uid, gid;
  uint16_t mode, spare;
  uint8_t rest[256];
} specops_statx;
int statx(int folder, const char *path, int flags, unsigned int mask, specops_statx *found);
unsigned int geteuid(void);
unsigned int umask(unsigned int mask);
int unlink(const char *path);
]])

local AT_FDCWD, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS = -100, 0x100, 0x7ff
local WRITABLE_BY_OTHERS = 18 -- octal 022
local OWN_AND_GROUP = 23 -- octal 027, a umask: files have mode 0640

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

local function stat(name, flags)
  local found = ffi.new("specops_statx")
  if ffi.C.statx(AT_FDCWD, name, flags, STATX_BASIC_STATS, found) == 0 then
    return found
  end
end

-- Why the file at `path` is not believed; nil where it is, or where there is none.
local function foreign()
  local found, folder = stat(path, AT_SYMLINK_NOFOLLOW), stat(ngx.config.prefix(), 0)
  if not found then
    return nil
  elseif found.uid ~= 0 and found.uid ~= ffi.C.geteuid() and not (folder and folder.uid == found.uid) then
    return "it belongs to user " .. found.uid
  elseif bit.band(found.mode, WRITABLE_BY_OTHERS) ~= 0 then
    return "others may write to it"
  end
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
  ffi.C.unlink(new)
  local before = ffi.C.umask(OWN_AND_GROUP) -- a daemon has none
  local file, why = io.open(new, "wb")
  ffi.C.umask(before)
  if not file then
    return nil, why
  end
  local done, closed, on_close
  done, why = file:write(text)
  closed, on_close = file:close() -- a full disk may show here alone
  if done and not closed then
    done, why = nil, on_close
  end
  if done then
    done, why = os.rename(new, path)
  end
  if not done then
    ffi.C.unlink(new)
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
  local why = foreign()
  if why then
    if state:get("refused") ~= why .. text then
      state:set("refused", why .. text)
      ngx.log(ngx.ERR, "specops: ", path, " is not followed: ", why)
    end
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
    return ngx.print(written(percent, not set(percent) and ', "stored": false' or nil))
  elseif method ~= "GET" then
    ngx.header.allow = "GET, PUT"
    return refuse(405, "GET or PUT")
  end
  ngx.print(written(M.percent()))
end

return M
