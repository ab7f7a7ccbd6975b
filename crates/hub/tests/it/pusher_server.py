# The unmodified library `pusher` of PyPI against the HTTP API of a hub. Usage: pusher_server.py PORT KEY SECRET ID. Prints "ok".
import sys
import pusher

port, key, secret, app_id = sys.argv[1:]
client = pusher.Pusher(app_id=app_id, key=key, secret=secret, host="127.0.0.1", port=int(port), ssl=False)
client.trigger("news", "headline", {"text": "é"})
client.trigger_batch([{"channel": "news", "name": "headline", "data": {"text": "batch"}}])
assert client.channels_info()["channels"].keys() == {"presence-room", "news"}, client.channels_info()
assert client.channel_info("news", ["subscription_count"])["occupied"] is True
assert [user["id"] for user in client.users_info("presence-room")["users"]] == ["u"]
other = pusher.Pusher(app_id=app_id, key=key, secret="other", host="127.0.0.1", port=int(port), ssl=False)
try:
    other.trigger("news", "headline", "forged")
except pusher.errors.PusherForbidden as why:
    sys.exit(f"401 was to be expected: {why}")
except pusher.errors.PusherBadAuth:
    print("ok")
