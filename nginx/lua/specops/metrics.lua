-- What the router counts, by class and pool, in Prometheus' text format.
--
-- A request is counted in tables of its worker's own. Once in a second they are added to shared memory, where a
-- counter is one key, `name{labels}` as it will be exposed: nothing is shared while a request is answered. A worker
-- that is killed takes what it counted within that second with it.

local effect = require("specops.effect")
local in_flight = require("specops.in_flight")
local rules = require("specops.rules")
local switch = require("specops.switch")

local floor = math.floor

local counted = ngx.shared.specops_metrics

local REQUESTS = "specops_route_requests_total"
local DECISIONS = "specops_route_decisions_total"
local FAILOVERS = "specops_route_failovers_total"
local DURATION = "specops_route_request_duration_seconds"
local FIRST_BYTE = "specops_route_first_byte_seconds"

local HELP = {
  { REQUESTS, "counter", "Requests by the pool decided on and the pool that answered." },
  { DECISIONS, "counter", "Decisions by reason, when a request begins." },
  { FAILOVERS, "counter", "Answered by the standard pool in place of a speculative one that did not." },
  { DURATION, "histogram", "From the request to the end of an answer with status 2xx." },
  { "specops_effect_requests_total", "counter", "Eligible requests by figure and group: values of the figure." },
  { "specops_effect_sum_total", "counter", "Sum of the figure: seconds, tokens, or failed requests." },
  { "specops_effect_squares_total", "counter", "Sum of its squares." },
  { "specops_effect_load_total", "counter", "Sum of the loads: requests for each server of the pool." },
  { "specops_effect_load_squares_total", "counter", "Sum of their squares." },
  { "specops_effect_load_product_total", "counter", "Sum of load times figure." },
  { "specops_effect_left_out_total", "counter", "Requests of a group whose time is not counted, by reason." },
  { FIRST_BYTE, "histogram", "From the request to the first byte of the body of an answer with status 2xx." },
}

local BOUNDS = { 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600 }

local M = {}

local function histogram_of_none()
  local buckets = { sum = 0 }
  for index = 1, #BOUNDS + 1 do
    buckets[index] = 0
  end
  return buckets
end

-- class -> pool -> served -> hundreds of the status -> what was counted since it was published
local pending = {}

local function below(node, name)
  local found = node[name]
  if not found then
    found = {}
    node[name] = found
  end
  return found
end

local function cell_of(class, pool, served, hundreds)
  local node = below(below(below(pending, class), pool), served)
  local cell = node[hundreds]
  if not cell then
    cell = { requests = 0, duration = histogram_of_none(), first_byte = histogram_of_none() }
    node[hundreds] = cell
  end
  return cell
end

local function observe(buckets, seconds)
  local index = 1
  while BOUNDS[index] and seconds > BOUNDS[index] do
    index = index + 1
  end
  buckets[index] = buckets[index] + 1
  buckets.sum = buckets.sum + seconds
end

-- class -> pool -> reason -> decisions since they were published
local decisions = {}

-- When a request begins, so that where requests go now is not hidden behind answers that take minutes.
function M.decided(class, pool, reason)
  local counts = below(below(decisions, class), pool)
  counts[reason] = (counts[reason] or 0) + 1
end

-- When it has ended. `served` is the pool that answered, or "none"; `first_byte` nil where there was no body.
function M.count(class, pool, served, status, duration, first_byte)
  local hundreds = floor(status / 100)
  local cell = cell_of(class, pool, served, hundreds)
  cell.requests = cell.requests + 1
  if hundreds == 2 then
    observe(cell.duration, duration)
    if first_byte then
      observe(cell.first_byte, first_byte)
    end
  end
end

local function add(key, by)
  if by ~= 0 then
    counted:incr(key, by, 0)
  end
end

local function publish_histogram(name, class, served, buckets)
  local labels = ('class="%s",pool="%s"'):format(class, served)
  for index = 1, #BOUNDS + 1 do
    local bound = BOUNDS[index] and ("%g"):format(BOUNDS[index]) or "+Inf"
    add(('%s_bucket{%s,le="%s"}'):format(name, labels, bound), buckets[index])
    buckets[index] = 0
  end
  add(("%s_sum{%s}"):format(name, labels), buckets.sum)
  buckets.sum = 0
end

local function publish_cell(cell, class, pool, served, hundreds)
  if cell.requests == 0 then
    return
  end
  local labels = ('class="%s",pool="%s",served="%s",status="%dxx"'):format(class, pool, served, hundreds)
  add(("%s{%s}"):format(REQUESTS, labels), cell.requests)
  if pool == "speculative" and served == "standard" then
    add(('%s{class="%s"}'):format(FAILOVERS, class), cell.requests)
  end
  cell.requests = 0
  publish_histogram(DURATION, class, served, cell.duration)
  publish_histogram(FIRST_BYTE, class, served, cell.first_byte)
end

-- Once in a second, in each worker, and at its end.
function M.publish()
  effect.publish(add)
  for class, pools in pairs(decisions) do
    for pool, reasons in pairs(pools) do
      for reason, count in pairs(reasons) do
        add(('%s{class="%s",pool="%s",reason="%s"}'):format(DECISIONS, class, pool, reason), count)
        reasons[reason] = 0
      end
    end
  end
  for class, pools in pairs(pending) do
    for pool, all_served in pairs(pools) do
      for served, cells in pairs(all_served) do
        for hundreds, cell in pairs(cells) do
          publish_cell(cell, class, pool, served, hundreds)
        end
      end
    end
  end
end

-- name -> labels -> {lines' bounds and values}
local function gathered()
  local families = {}
  for _, key in ipairs(counted:get_keys(0)) do
    local name, labels = key:match("^([%w_]+){(.*)}$")
    local family = name:gsub("_bucket$", ""):gsub("_sum$", "")
    families[family] = families[family] or {}
    table.insert(families[family], { name = name, labels = labels, value = counted:get(key) or 0 })
  end
  return families
end

local function histogram(lines, family, samples)
  local by_labels, order = {}, {}
  for _, sample in ipairs(samples) do
    local labels = sample.labels:gsub(',le="[^"]*"$', "")
    if not by_labels[labels] then
      by_labels[labels] = { buckets = {}, sum = 0 }
      table.insert(order, labels)
    end
    local bound = sample.labels:match(',le="([^"]*)"$')
    if bound then
      by_labels[labels].buckets[bound] = sample.value
    else
      by_labels[labels].sum = sample.value
    end
  end
  table.sort(order)
  for _, labels in ipairs(order) do
    local series, total = by_labels[labels], 0
    for index = 1, #BOUNDS + 1 do
      local bound = BOUNDS[index] and ("%g"):format(BOUNDS[index]) or "+Inf"
      total = total + (series.buckets[bound] or 0)
      table.insert(lines, ('%s_bucket{%s,le="%s"} %d'):format(family, labels, bound, total))
    end
    table.insert(lines, ("%s_sum{%s} %.6f"):format(family, labels, series.sum))
    table.insert(lines, ("%s_count{%s} %d"):format(family, labels, total))
  end
end

local function counter(lines, samples)
  table.sort(samples, function(a, b)
    return a.labels < b.labels
  end)
  for _, sample in ipairs(samples) do
    table.insert(lines, ("%s{%s} %.14g"):format(sample.name, sample.labels, sample.value))
  end
end

local function gauge(lines, name, help, rows)
  table.insert(lines, ("# HELP %s %s"):format(name, help))
  table.insert(lines, ("# TYPE %s gauge"):format(name))
  for _, row in ipairs(rows) do
    table.insert(lines, ("%s%s %.14g"):format(name, row[1], row[2]))
  end
end

-- The admin listener's /metrics.
function M.answer()
  M.publish()
  local lines, families = {}, gathered()
  for _, family in ipairs(HELP) do
    local name, kind, help = family[1], family[2], family[3]
    table.insert(lines, ("# HELP %s %s"):format(name, help))
    table.insert(lines, ("# TYPE %s %s"):format(name, kind))
    if kind == "histogram" then
      histogram(lines, name, families[name] or {})
    else
      counter(lines, families[name] or {})
    end
  end
  gauge(lines, "specops_route_in_flight", "Requests of a pool, each counted n times.", {
    { '{pool="speculative"}', in_flight.of_speculative() },
    { '{pool="standard"}', in_flight.of_standard() },
  })
  gauge(
    lines,
    "specops_route_speculative_percent",
    "Of what the rules allow on the speculative pool, the share that goes there.",
    { { "", switch.percent() } }
  )
  gauge(lines, "specops_route_info", "What is running.", {
    { ('{nginx="%s",rollout="%s",specops="%s"}'):format(ngx.var.nginx_version, rules.rollout, rules.specops), 1 },
  })
  ngx.header.content_type = "text/plain; version=0.0.4; charset=utf-8"
  ngx.say(table.concat(lines, "\n"))
end

return M
