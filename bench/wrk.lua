-- The requests that wrk sends, and how it counts the answers.
--
--   wrk -s wrk.lua URL -- post PATH FILE     posts the lines of FILE in turn
--   wrk -s wrk.lua URL -- hook PATH FILE N   posts N webhooks of GitHub. Each line of FILE is a signature and a body. Each
--                                            delivery id is new and ends with the microseconds at which it was sent
--   wrk -s wrk.lua URL -- pop PATH           pops until the queue is empty
--   wrk -s wrk.lua URL -- pop PATH ack SECONDS    pops and acks each batch; after SECONDS it only acks
--   wrk -s wrk.lua URL -- stay PATH [ack SECONDS] pops for the whole time, whether the queue is empty or not
--   wrk -s wrk.lua URL -- fan PATH FILE POP...    posts a line of FILE to PATH, then gets each POP, over and over

local EMPTY_MAX = 5  -- another connection may hold the lane for a moment; more empty pops mean the end of the backlog
local threads = {}
local ffi = require("ffi")
ffi.cdef("typedef struct { long seconds; long us; } bench_time; int gettimeofday(bench_time *, void *);")
local clock = ffi.new("bench_time")

function setup(thread)
  table.insert(threads, thread)
end

-- `thread:get` only reaches globals.
function init(args)
  messages, empty, stays = 0, 0, args[1] ~= "pop"
  ends, busy = nil, -1  -- pops that are not acked yet; wrk builds one request before it starts
  requests, turn, acks = {}, 0, {}
  acking, lasts = args[3] == "ack", tonumber(args[4])
  if args[1] == "post" then
    for line in io.lines(args[3]) do
      table.insert(requests, wrk.format("POST", args[2], nil, line))
    end
    response = nil  -- wrk is faster without a response callback
  elseif args[1] == "hook" then
    math.randomseed(os.time())
    run, path, hooks_max = math.random(1, 1e9), args[2], tonumber(args[4])
    for line in io.lines(args[3]) do
      local signature, body = line:match("^(%S+) (.*)$")
      table.insert(requests, { signature = signature, body = body })
    end
    request, response = deliver, nil
  elseif args[1] == "fan" then
    for line in io.lines(args[3]) do
      table.insert(requests, wrk.format("POST", args[2], nil, line))
      for at = 4, #args do
        table.insert(requests, wrk.format("GET", args[at]))
      end
    end
  else
    table.insert(requests, wrk.format("GET", args[2]))
  end
end

local function now()
  ffi.C.gettimeofday(clock, nil)
  return tonumber(clock.seconds) + tonumber(clock.us) / 1e6
end

function request()
  local ack = table.remove(acks)
  if ack then
    return wrk.format("POST", "/api/v1/ack/batch", nil, ack)
  end
  if acking then
    ends = ends or now() + lasts
    if now() > ends then
      return wrk.format("GET", "/livez")  -- keeps busy until the others have acked; unacked messages would stay leased
    end
    busy = busy + 1
  end
  turn = turn % #requests + 1
  return requests[turn]
end

local function stop()
  io.stderr:write("dry\n")
  io.stderr:flush()
  wrk.thread:stop()
end

function deliver()
  turn = turn + 1
  if turn == hooks_max then
    stop()
  end
  ffi.C.gettimeofday(clock, nil)
  local hook = requests[(turn - 1) % #requests + 1]
  return wrk.format("POST", path, {
    ["Content-Type"] = "application/json",
    ["X-Hub-Signature-256"] = hook.signature,
    ["X-GitHub-Delivery"] = string.format("%d-%d-%.0f", run, turn, tonumber(clock.seconds) * 1e6 + tonumber(clock.us)),
  }, hook.body)
end

local function count(text, word)
  local found, at = 0, text:find(word, 1, true)
  while at do
    found, at = found + 1, text:find(word, at + 1, true)
  end
  return found
end

-- A pop of one lane names its partition and lease once, before the messages.
local function ack_of(body)
  local partition, lease, group = body:match('"partitionId":("[^"]*"),"leaseId":("[^"]*"),"consumerGroup":("[^"]*")')
  local where = '","partitionId":' .. partition .. ',"leaseId":' .. lease .. '}'
  local items = {}
  for id in body:gmatch('{"id":"[^"]*","transactionId":"([^"]*)"') do
    items[#items + 1] = '{"transactionId":"' .. id .. where
  end
  return '{"consumerGroup":' .. group .. ',"acknowledgments":[' .. table.concat(items, ",") .. ']}'
end

function response(status, headers, body)
  if status == 204 then
    empty, busy = empty + 1, busy - 1
    if empty == EMPTY_MAX and not stays then
      stop()
    end
  elseif status == 200 and body:byte(1) == 91 then  -- [
    messages, busy = messages + count(body, 'success":true'), busy - 1
  elseif status == 200 and acking then
    if body:find('"leaseId"', 1, true) then
      table.insert(acks, ack_of(body))
    elseif busy <= 0 then
      stop()
    end
  elseif status == 200 then
    messages = messages + count(body, '{"id":')
  end
end

function done(summary, latency)
  local errors, taken = summary.errors, 0
  for _, thread in ipairs(threads) do
    taken = taken + thread:get("messages")
  end
  io.write(string.format(
    '{"requests":%d,"messages":%d,"seconds":%f,"failed":%d,"p50_ms":%f,"p99_ms":%f,"p999_ms":%f}\n',
    summary.requests, taken, summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.timeout + errors.status,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency:percentile(99.9) / 1e3
  ))
end
