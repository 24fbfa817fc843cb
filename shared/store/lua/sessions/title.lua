#!lua
-- Gives a chat the title that a model chose, while the title is the first words that the caller read.
-- title  '' = the first words stay for good
-- words  the title as it was read
-- gen    the conversation as it was read
-- returns 1 done, 0 the chat has another title or conversation, or is gone
local session = unpack(KEYS)
local title, words, gen = unpack(ARGV)
local titled, has, now_gen = unpack(redis.call('HMGET', session, 'titled', 'title', 'gen'))
-- A person has renamed the chat, `/new` or `/forget` ended the conversation, or it was erased.
if titled ~= 'words' or has ~= words or (now_gen or '0') ~= gen then return 0 end
if title == '' then
  redis.call('HSET', session, 'titled', 'kept')
  return 1
end
redis.call('HSET', session, 'title', title, 'titled', 'model')
add_fact(key_id(session), 'row', 1)
return 1
