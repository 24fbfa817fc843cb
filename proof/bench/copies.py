"""A hundred thousand sessions in a moment: copies, made inside of the server, of one that the product wrote."""

from __future__ import annotations

from functools import partial
from typing import Final

from proof.bench.server import at_rest
from proof.bench.sessions import history, make_sessions
from shared.store.client.redis_client import RedisClient
from tests.helpers.wait import eventually

CHAT: Final = "base"
BATCH: Final = 2000
_COPY: Final = """#!lua
-- Copies one session to sessions of people of their own: its keys, and what other keys say of it.
-- KEYS   all that there were before   ARGV   1 the first number  2 the last one
-- returns the last one
local from, to = tonumber(ARGV[1]), tonumber(ARGV[2])
for _, name in ipairs(KEYS) do
  local kind = redis.call('TYPE', name).ok
  if string.find(name, 'owner/base', 1, true) or string.match(name, ':owner$') then
    for n = from, to do
      redis.call('COPY', name, (string.gsub(name, ':owner', ':o' .. n, 1)))
    end
  elseif kind == 'zset' then
    for _, member in ipairs(redis.call('ZRANGE', name, 0, -1)) do
      if string.find(member, 'owner/base', 1, true) then
        local score = redis.call('ZSCORE', name, member)
        for n = from, to do
          redis.call('ZADD', name, score, (string.gsub(member, 'owner', 'o' .. n, 1)))
        end
      end
    end
  elseif string.match(name, '^shoal:{0ax}:seen:') then
    for n = from, to do
      redis.call('HSET', name, 'copy' .. n, '1:1')
    end
  end
end
return to
"""


async def copy_sessions(client: RedisClient, many: int) -> None:
    """So many idle sessions of one turn each, in a store that holds nothing else."""
    await make_sessions(client, [CHAT], history(2, chars=200))
    names = await client.command("KEYS", "*")
    for start in range(1, many + 1, BATCH):
        await client.command("EVAL", _COPY, len(names), *names, start, min(start + BATCH - 1, many))
    await eventually(partial(at_rest, client), within_s=120, every_s=0.1, what="a server that writes no files")
