-- Charges once: idempotent_request in nginx.conf lets only the first request with a key reach this.

local payment = ngx.shared.store:incr("payments", 1, 0)
ngx.sleep(0.05)
ngx.status = 201
ngx.header["Location"] = "/payments/" .. payment
ngx.say(('{"payment": %d}'):format(payment))
