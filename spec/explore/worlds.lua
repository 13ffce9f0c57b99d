-- The small worlds that are searched, one in a line: see world.lua.

local TABLE = [[
lock acquire: p1 holds 10; p2 holds 2
lock acquire by three: p1 holds 10; p2 holds 1; p3 holds 1
lock acquire with faults: p1 holds 10; p2 holds 2 | lose_reply p1; lose_reply p2; drop p1; drop p2 events; kill p2
lock acquire and crash: p1 holds 10 lease 300; p2 holds 2; p3 holds 1 | crash p1; crash p2; crash p2 lag=50
lock acquire and pause: p1 holds 10 lease 300; p2 holds 2 | pause p1 600; pause p2 600; pause p2 1200
lock acquire and late messages: p1 holds 20; p2 holds 20; p3 holds 1 | stall_link p2 events 700; stall_link p2 calls 700; stall_up p2 calls 700
lock acquire and cuts: p1 holds 10; p2 holds 2 | cut p1 700; cut_up p2 700; cut_down p2 700; cut p2 1500
lock acquire twice: p1 holds 1 times 2; p2 holds 1 times 2
lock acquire, no wait: p1 holds 10 times 2 gap 1; p2 tries holds 1 times 3 gap 1
lock release: p1 holds 10; p2 holds 1 | lose_reply p1; drop p1; cut_down p1 700; cut_up p1 700
lock release, not waited for: p1 holds 1 async times 2; p2 holds 1 async | lose_reply p1; drop p1
lock release, given up: p1 holds 1 hasty times 2; p2 holds 1 | stall_up p1 700
lock release that is late: p1 patient 100 holds 150 times 3; p2 from 300 holds 1 | stall_up p1 300; stall_up p1 400
lock release, refused: p1 holds 10; p2 holds 1 | oom s1 50; readonly s1 50; noperm s1 50; noreplicas s1 50
lock release, refused for long: p1 patient 100 holds 10 lease 10000; p2 holds 1 | noreplicas s1 250; noperm s1 250
lock release and a busy server: p1 holds 10; p2 holds 1 | busy s1 50; loading s1 50
lock extend: p1 holds 10 extends 500; p2 holds 1
lock extend with faults: p1 holds 10 fixed lease 400 extends 400 stays 100; p2 holds 1 | lose_reply p1; drop p1; stall_link p1 700; pause p1 500
lock extend and renew: p1 lease 300 extends 2000 holds 10 stays 2500; p2 holds 1
lock extend before a late renewal: p1 patient 100 lease 600 holds 400 extends 3000 stays 1500; p2 holds 1 | stall_up p1 300
lock check: p1 holds 10 checks 3; p2 holds 1 | lose_reply p1; stall_link p1 700
lock check behind a grant: p1 holds 10; p2 holds 1 checks 400
lock grant that is late: p1 grants 300 holds 10 lease 420; p2 holds 2; p3 from 350 holds 500 | stall_link p2 events 500
lock wait that ends: p1 holds 20; p2 waits 10; p3 holds 1
lock wait that ends at the grant: p1 holds 20; p2 waits 26; p3 holds 1 | stall_link p2 events 700; stall_up p2 700
lock wait that ends, and a crash: p1 holds 8; p2 waits 14; p3 holds 1 | crash p3
lock wait that is given up: p1 holds 20; p2 quits 26; p3 holds 1
lock wait that is given up early: p1 holds 8; p2 quits 14; p3 holds 1 | lose_reply p2; drop p2; stall_up p2 700
lock undo of a grant, refused: p1 quits 5.5 holds 1; p2 from 60 holds 1 in_by 2500 | noreplicas s1 50; misconf s1 50; oom s1 50
lock watchdog: p1 holds 350 lease 300; p2 holds 1
lock watchdog with faults: p1 holds 350 lease 300; p2 holds 1 | lose_reply p1 renewer; stall_link p1 renewer 200; pause p1 250; restart s1 20; stall s1 200
lock watchdog on its own link: p1 holds 350 lease 300 linked; p2 holds 1 | drop p1 renewer; stall_up p1 renewer 200
lock watchdog and a new password: p1 holds 5000 lease 10000; p2 holds 1 | rotate s1 both 700; rotate s1 at_once 700; rotate s1 user 700
lock enter: p1 holds 10 enters; p2 holds 1 | lose_reply p1; drop p1
lock enter while held: p1 holds 10 again 2; p2 holds 1 | lose_reply p1; stall_up p1 700
lock enter by several handles: p1 steps acquire 1, acquire 2, release 1, drop 2, nap 1, release 1; p2 holds 1
lock enter and abandon: p1 steps acquire 1, acquire 2, abandon 1, nap 1, release 2; p2 holds 1 | lose_reply p1
lock enter and abandon through another handle: p1 steps acquire 1, acquire 2, abandon 3, drop 1, nap 1, release 2; p2 holds 1
lock enter and release for another handle: p1 steps acquire 1, acquire 2, acquire 3, release 1, release 1, drop 2, nap 1, release 3; p2 holds 1
lock common handle: p1 holds 10 common; p1 holds 2 common; p2 holds 1
lock common handle that vanishes: p1 holds 10 common vanishes 1; p1 holds 2 common; p2 holds 1
lock drop: p1 holds 10 drops; p2 holds 1 | lose_reply p1; drop p1
lock drop and acquire again: p1 linked holds 1 drops times 3 gap 1 alone
lock break: p1 holds 10; p2 breaks holds 2; p3 holds 1 | lose_reply p2
lock force: p1 holds 10 forces; p2 holds 1 | lose_reply p1; drop p1
lock deleted: p1 holds 10; p2 holds 2 | delete s1
lock kept: p1 holds 1 keeps 500 times 3 gap 1; p2 holds 1
lock kept with faults: p1 holds 1 keeps 500 times 3 gap 1; p2 holds 1 | lose_reply p1; drop p1 events; stall_link p1 events 700; pause p1 700
lock kept by both: p1 holds 1 keeps 500 times 2 gap 1; p2 holds 1 keeps 500 times 2 gap 1
lock kept and wanted: p1 holds 20 keeps 1000 times 2 gap 100; p2 holds 1
lock kept, and a newcomer hands it over: p1 holds 400 lease 300 fixed; p1 key b holds 600; p2 keeps 1000 holds 2 times 2 gap 50; p3 key b holds 1; p3 from 306.5 holds 1
lock kept and crash: p1 holds 1 keeps 500 times 2 lease 400; p2 holds 1 | crash p1
lock kept and broken: p1 holds 1 keeps 500 times 3 gap 1; p1 breaks keeps 500 holds 1 times 2 gap 1; p2 holds 1 | lose_reply p1
lock kept and returned: p1 linked holds 1 keeps 10 times 3 gap 10 alone
lock kept by two callers: p1 holds 1 keeps 500 times 2 gap 1; p1 holds 1 keeps 500 times 2; p2 holds 1
lock shared owner: p1 holds 10 as x; p2 holds 2 as x; p3 holds 1
lock shared owner, late grant: p1 holds 5; p2 holds 2 as x; p3 holds 2 as x | stall_link p2 events 700; give_up p2 events
lock shared owner, joined while a grant is late: p1 holds 20; p2 holds 2 as x from 10; p3 holds 600 as x from 24 | stall_link p2 events 700
lock shared owner, wait that ends: p1 holds 8; p2 waits 14 as x; p3 holds 2 as x | stall_link p2 events 700
lock shared owner, given up: p1 holds 8 as x; p2 holds 1 as x quits 14; p3 holds 1 | stall_link p2 events 700
lock shared owner in one process: p1 holds 10 as x; p1 holds 2 as x; p2 holds 1
lock multi: p1 both holds 10; p2 both holds 2
lock multi, apart: p1 both apart holds 10; p2 both holds 2; p3 key b holds 1
lock multi with faults: p1 both holds 10; p2 both holds 2 | lose_reply p1; drop p2; stall_up p1 700
lock multi, slow: p1 slow 100 both holds 400 lease 300 fixed; p2 both holds 1 from 700
lock multi release refused: p1 both holds 10; p2 both holds 1 | oom s1 50; noreplicas s1 50; misconf s1 50
lock multi and one: p1 both holds 10; p2 holds 2; p3 key b holds 2
lock multi, tried when a lease ends: p1 holds 400 lease 300 fixed; p2 holds 1; p3 both tries holds 1 from 301
lock multi, waited for: p1 both holds 300 grants 2000; p2 holds 2 grants 2000; p3 key b holds 2 grants 2000
lock multi, twice: p1 both holds 10 twice release; p2 holds 1
lock multi, collected: p1 both holds 10 forsakes; p2 both holds 1
lock multi, entered: p1 both enters holds 2; p2 holds 1 | lose_reply p1
lock multi with the watchdog: p1 both holds 350 lease 300; p2 both holds 1 | stall_link p1 700
lock two keys: p1 holds 10 also b waits 30; p2 key b holds 4; p2 holds 1
lock deadlock: p1 introduced holds 10 also b waits 3000 untangles 500; p2 introduced key b also a holds 2 waits 3000 untangles 500
lock deadlock of others: p1 introduced holds 20 also b waits 3000; p2 introduced key b also a holds 20 waits 3000; p3 introduced from 60 holds 1 untangles 100; p3 from 60 holds 1 untangles 100
lock max_hold: p1 holds 400 lease 300 at_most 200; p2 holds 1
lock max_hold and kept: p1 holds 200 keeps 3000 at_most 400 times 3 gap 1; p2 from 100 holds 1
lock Redisson beside it: p1 holds 10; p2 holds 1; java holds 2
lock Redisson waits first: p1 holds 30; java holds 1 from 8; p2 from 12 holds 1
lock shorter lease, Redisson waits: p1 fixed holds 100 extends 300 stays 1000; java holds 1 in_by 1000
lock Redisson twice: p1 holds 1 times 2; p2 holds 1 times 2; java holds 1 times 2
lock Redisson and kept: p1 holds 1 keeps 500 times 3 gap 1; java holds 1 times 2
lock Redisson and a wait that ends: p1 holds 8; p2 waits 14; java holds 2
lock Redisson with faults: p1 holds 10; p2 holds 1; java holds 2 | lose_reply p1; stall_link p2 events 700; crash p2
lock attended: p1 attended holds 350 lease 300; p2 holds 1
lock attended and vanishes: p1 attended holds 10 vanishes 5 lease 300; p2 holds 1
lock close: p1 holds 10; p2 holds 2; p3 holds 1 | close p1; close p2
lock crash of an earlier owner: p1 proves holds 100; p3 proves holds 2000; p2 proves from 10 holds 1 | crash p1
lock restart: p1 holds 10; p2 holds 2 | restart s1 10; lose s1 10; flush s1; refuse s1 100; stall s1 700
lock counter: p1 holds 10 times 2; p2 holds 2 | lose_counter s1; forget_scripts s1
lock clock: p1 holds 10 times 2; p2 holds 2 | clock s1 jump=1000; clock s1 jump=-1000
lock dead link: p1 holds 10; p2 holds 2 | forget p1 all both; forget p2 events down; forget p2 calls up
lock dead calls: p1 holds 10; p2 holds 2 | forget p1 calls both; forget p1 calls down; forget p2 calls both
lock forged: p1 holds 10; p2 holds 2 | forge p2
mutex acquire: p1 holds 10; p2 holds 2
mutex acquire by three: p1 holds 10; p2 holds 1; p3 holds 1
mutex acquire with faults: p1 holds 10; p2 holds 2 | lose_reply p1; lose_reply p2; drop p1; drop p2 events; stall_link p2 events 700
mutex acquire and crash: p1 holds 10 lease 300; p2 holds 2 | crash p1; crash p2; pause p1 600
mutex release: p1 holds 1 times 2; p2 holds 1 | lose_reply p1; cut_down p1 700; cut_up p1 700
mutex extend: p1 holds 10 extends 500; p2 holds 1 | lose_reply p1; drop p1
mutex wait that ends: p1 holds 8; p2 waits 14; p3 holds 1
mutex wait that is given up: p1 holds 8; p2 quits 14; p3 holds 1 | lose_reply p2; stall_up p2 700
mutex watchdog: p1 holds 350 lease 300; p2 holds 1 | lose_reply p1 renewer; pause p1 250
mutex break: p1 holds 5; p2 breaks holds 2; p3 holds 1 | lose_reply p2
mutex force: p1 holds 10 forces; p2 holds 1 | lose_reply p1
mutex deleted: p1 holds 10; p2 holds 2 | delete s1
mutex kept: p1 holds 1 keeps 500 times 3 gap 1; p2 holds 1 | lose_reply p1; stall_link p1 events 700
mutex others poll: p1 holds 10; p2 holds 1; java holds 2
guard acquire: p1 holds 10 completes; p2 holds 2 completes
guard acquire by three: p1 holds 10 completes; p2 holds 1; p3 holds 1 completes
guard acquire with faults: p1 holds 10 completes; p2 holds 2 completes | lose_reply p1; drop p1; lose_reply p2; stall_up p1 700
guard acquire and crash: p1 holds 10 lease 300 completes; p2 holds 2 completes | crash p1; crash p2; pause p1 600
guard release: p1 holds 10; p2 holds 2 completes | lose_reply p1; cut_down p1 700; oom s1 50
guard release soon: p1 holds 2; p2 holds 2 completes | lose_reply p1
guard deleted: p1 holds 10 completes; p2 from 11.5 holds 1 completes | delete s1
guard deleted before it completes: p1 holds 10 completes; p2 from 13 holds 1; p3 from 40 holds 1 completes | delete s1
guard complete, refused: p1 holds 10 completes; p2 holds 2 completes | oom s1 50; noreplicas s1 50; noperm s1 50; readonly s1 50
guard fingerprint: p1 holds 10 completes prints A; p2 holds 2 completes prints B
guard same fingerprint: p1 holds 10 completes prints A; p2 holds 2 completes prints A | lose_reply p1; lose_reply p2
guard wait that ends: p1 holds 8 completes; p2 waits 14 completes; p3 holds 1 completes
guard watchdog: p1 holds 350 lease 300 completes; p2 holds 1 completes | pause p1 500; lose_reply p1 renewer
guard no wait: p1 holds 10 completes; p2 tries completes times 3 gap 1
read_write readers: p1 reads 10; p2 reads 2; p3 writes 1
read_write writers: p1 writes 10; p2 writes 2; p3 reads 1
read_write reader and writer: p1 reads 10 times 2; p2 writes 2
read_write with faults: p1 reads 10; p2 writes 2; p3 reads 1 | lose_reply p1; lose_reply p2; drop p2 events; stall_link p2 events 700
read_write and crash: p1 reads 10 lease 300; p2 writes 2 lease 300; p3 reads 1 | crash p1; crash p2; pause p1 600
read_write release: p1 writes 1 times 2; p2 reads 1 times 2 | lose_reply p1; cut_down p1 700; cut_up p2 700
read_write extend: p1 reads 10 extends 500; p2 writes 2 extends 500 | lose_reply p1; drop p2
read_write writer's wait that ends: p1 reads 8; p2 writes 1 waits 14; p3 reads 1
read_write reader's wait that ends: p1 writes 8; p2 reads 1 waits 14; p3 reads 1
read_write reader behind a writer that gives up: p1 reads 1500; p2 writes 1 waits 60; p3 reads 1 from 20 in_by 300
read_write given up: p1 reads 8; p2 writes 1 quits 14; p3 reads 1 | lose_reply p2; stall_up p2 700
read_write watchdog: p1 reads 350 lease 300; p2 writes 350 lease 300 | lose_reply p1 renewer; pause p1 250
read_write two leases: p1 reads 100 lease 300 fixed; p2 reads 2 lease 900; p3 writes 1 | crash p1
read_write enter: p1 reads 10 enters; p2 writes 2 enters | lose_reply p1
read_write downgrade: p1 writes 10 downgrades; p2 writes 2; p3 reads 1 | lose_reply p1
read_write read within: p1 writes 10 within; p2 reads 2
read_write upgrade: p1 reads 10 upgrades; p2 writes 2
read_write break: p1 writes 5 forces; p2 reads 2; p3 writes 1 | lose_reply p1
read_write several handles: p1 reads 1 steps acquire 1, acquire 2, release 1, drop 2, release 1; p2 writes 1
read_write Redisson reads: p1 writes 10; p2 reads 1; java reads 2 times 2
read_write Redisson writes: p1 reads 10; p2 writes 1; java writes 2 times 2
read_write Redisson writes, and readers come: p1 reads 1000; java writes 2 from 5; p2 reads 1 from 10; p3 reads 1 from 320
read_write Redisson waits: p1 writes 5; p2 reads 2 times 2; java writes 2
read_write Redisson with faults: p1 reads 10; p2 writes 2; java reads 2 | lose_reply p1; crash p2; stall_link p2 events 700
fair acquire: p1 holds 10; p2 holds 2
fair acquire by three: p1 holds 10; p2 holds 1; p3 holds 1
fair acquire with faults: p1 holds 10; p2 holds 2 | lose_reply p1; lose_reply p2; drop p2 events; stall_link p2 events 700
fair acquire and crash: p1 holds 10 lease 300; p2 holds 2; p3 holds 1 | crash p1; crash p2; pause p2 600
fair release: p1 holds 1 times 2; p2 holds 1 | lose_reply p1; cut_down p1 700
fair release, and a waiter that rarely asks: p1 holds 10; p2 holds 2 grants 2000
fair extend: p1 holds 10 extends 500; p2 holds 1 | lose_reply p1
fair wait that ends: p1 holds 8; p2 waits 14; p3 holds 1
fair waiter that pauses at its turn: p1 holds 10; p2 holds 2 lease 400; p3 holds 1 in_by 2500 | pause p2 4000
fair wait that is given up: p1 holds 8; p2 quits 14; p3 holds 1 | lose_reply p2; stall_up p2 700
fair watchdog: p1 holds 350 lease 300; p2 holds 1 | lose_reply p1 renewer; pause p1 250
fair enter: p1 holds 10 enters; p2 holds 1
fair break: p1 holds 5 forces; p2 holds 2 | lose_reply p1
fair Redisson beside it: p1 holds 10; p2 holds 1; java holds 2
fair shorter lease, Redisson waits: p1 fixed holds 100 extends 300 stays 1000; java holds 1 in_by 1000
fair Redisson dies: p1 holds 10; java holds 2 dies waits; p2 holds 1 | crash p1
fair Redisson deaf: p1 holds 10; java holds 2 dies deaf; p2 holds 1 | crash p2
fair Redisson is deaf: p1 holds 20; java holds 2 dies deaf from 2; p2 holds 1 from 5
permit acquire: p1 holds 10; p2 holds 2
permit acquire by three: of 2 permits p1 holds 10; p2 holds 12; p3 holds 1
permit acquire several: of 2 permits p1 holds 10 permits 2; p2 holds 2; p3 holds 2
permit acquire with faults: p1 holds 10; p2 holds 2 | lose_reply p1; lose_reply p2; drop p2 events; stall_link p2 events 700
permit acquire sent again: of 2 permits p1 holds 2; p2 holds 2 | lose_reply p1
permit acquire and crash: p1 holds 10 lease 300; p2 holds 2; p3 holds 1 | crash p1; crash p2; pause p1 600
permit release: p1 holds 1 times 2; p2 holds 1 | lose_reply p1; cut_down p1 700; drop p1
permit extend: p1 holds 10 extends 500; p2 holds 1 | lose_reply p1
permit wait that ends: p1 holds 8; p2 waits 14; p3 holds 1
permit wait that ends, in time: p1 holds 8; p2 waits 14; p3 holds 1 in_by 300
permit wait that is given up: p1 holds 8; p2 quits 14; p3 holds 1 | lose_reply p2; stall_up p2 700
permit watchdog: p1 holds 350 lease 300; p2 holds 1 | lose_reply p1 renewer; pause p1 250
permit resize: p1 holds 10 sets 2; p2 holds 2; p3 holds 1 | lose_reply p1
permit several wait: of 2 permits p1 holds 10; p2 holds 2 permits 2; p3 holds 1 | crash p2; lose_reply p2
permit Redisson beside it: p1 holds 10; p2 holds 1; java holds 2
permit Redisson twice: p1 holds 1 times 2; p2 holds 1 times 2; java holds 1 times 2
permit shorter lease, Redisson waits: p1 fixed holds 100 extends 300 stays 1000; java holds 1 in_by 1000
permit Redisson and several: of 2 permits p1 holds 10; p2 permits 2 holds 2; java holds 2 times 2
permit Redisson with faults: p1 holds 10 times 2; p2 holds 1; p3 holds 1; java holds 2 | lose_reply p1; crash p2; stall_link p2 events 700
permit Redisson shortened: of 2 permits p1 holds 10; p2 permits 2 holds 2 lease 300; java holds 2; java holds 2 | stall_link p2 events 700; lose_reply p2
permit Redisson waits for several: of 3 permits p1 holds 30 grants 2000; p3 holds 40 grants 2000; java holds 60; p2 permits 3 holds 3000 lease 300 fixed grants 2000; java permits 3 holds 2 from 12
permit Redisson and a release sent again: p1 slow 2 holds 60; p2 holds 2 from 20; p3 holds 2 from 21; java holds 5 from 30; java holds 2 from 31 | lose_reply p1
latch await: p1 set_count 1; p2 await; p3 count_down 1 from 5
latch await two: p1 set_count 2; p2 await; p3 count_down 1 from 5 times 2
latch await with faults: p1 set_count 1; p2 await waits 3000; p3 count_down 1 from 5 | lose_reply p3; drop p2 events; stall_link p2 events 700; lose_reply p1; open_latch s1
latch wait that ends: p1 set_count 1; p2 await waits 8; p3 count_down 1 from 5
latch deleted: p1 set_count 2; p2 await waits 3000; p3 delete from 5 | lose_reply p3
latch Redisson beside it: p1 set_count 1; p2 await; java await; p3 count_down 1 from 8
latch Redisson counts: p1 set_count 1; p2 await; java count_down 1 from 8
plain_semaphore take: p1 set_count 1; p2 take 1 holds 2 from 5; p3 take 1 holds 2 from 5
plain_semaphore take two: p1 set_count 2; p2 take 2 holds 2 from 5; p3 take 1 holds 2 from 5
plain_semaphore with faults: p1 set_count 1; p2 take 1 holds 2 from 5; p3 take 1 holds 2 from 5 waits 3000 | lose_reply p2; drop p2; stall_up p2 700; cut_down p2 1500; lose_reply p3; stall_link p3 events 700
plain_semaphore wait that ends: p1 set_count 1; p2 take 1 holds 5 from 5; p3 take 1 holds 2 from 5 waits 6
plain_semaphore given up: p1 set_count 1; p2 take 1 holds 5 from 5; p3 take 1 holds 2 from 5 quits 3 | stall_up p3 700; drop p3
plain_semaphore undone before it arrives: p1 set_count 1; p2 patient 100 take 1 holds 2 from 5 quits 60 | stall_up p2 300
plain_semaphore drain: p1 set_count 2; p2 drain holds 2 from 5; p3 take 1 holds 2 from 5 waits 3000 | lose_reply p2
plain_semaphore give: p1 set_count 1; p2 give 1 from 5; p3 take 2 holds 2 from 5 waits 3000 | lose_reply p2
plain_semaphore Redisson beside it: p1 set_count 1; p2 take 1 holds 2 from 5; java holds 2 from 6; p3 take 1 holds 1 from 5
leader lead: p1 leads 1 holds 2; p2 leads 1 holds 2
leader lead twice: p1 leads 2 holds 1; p2 leads 1 holds 1
leader lead with faults: p1 leads 1 holds 2 lease 300; p2 leads 1 holds 2 lease 300 | lose_reply p1; crash p1; pause p1 600; cut p1 700
leader lead once: p1 leads 2 once holds 2 lease 300; p2 leads 1 holds 2 lease 300 | cut p1 700; pause p1 700
leader late: p1 leads 1 holds 2 lease 300 delays 400; p2 leads 1 holds 2 lease 300
leader lost before its term: p1 leads 1 unwatched holds 2 lease 300 delays 400; p2 leads 1 holds 2 lease 300 | pause p1 600
quorum lock acquire: p1 holds 2; p2 holds 2
quorum lock acquire with faults: p1 holds 2; p2 holds 2 | lose_reply p1 s1; drop p2 s1; cut p1 s1 700; crash p1
quorum lock servers: p1 holds 2; p2 holds 2 | restart s1 10; stall s1 700; refuse s1 700; oom s1 50
quorum lock servers forget: p1 guards 3000 holds 100; p2 guards 3000 holds 2 | lose s1 s2 10
quorum lock release: p1 holds 1 times 2; p2 holds 1 | lose_reply p1 s1; cut_down p1 s1 700
quorum lock extend: p1 holds 2 extends 500; p2 holds 1 | stall s1 700
quorum lock wait that ends: p1 holds 20; p2 waits 10 holds 1
quorum lock given up: p1 holds 3; p2 quits 4; p2 from 8 holds 1 | stall s1 700
quorum lock given up early: p1 holds 2 quits 5.9; p1 from 30 holds 1 | stall s1 100
quorum lock tokens: p1 holds 2; p2 holds 2 from 5; p2 holds 1 from 20 | refuse s1 700; stall s1 700
quorum lock wait that ends, and faults: p1 holds 30; p2 waits 20 | refuse s1 700
quorum lock wait that ends in an outage: p1 holds 300; p2 waits 100 holds 1 | restart s1 s2 700
quorum lock watchdog: p1 holds 350 lease 300; p2 holds 1 | stall s1 200; pause p1 250
quorum lock enter: p1 holds 2 enters; p2 holds 1
quorum lock enter with faults: p1 holds 2 enters; p2 holds 1 | lose_reply p1 s1; stall s1 700; refuse s1 700
quorum lock enter and drop: p1 async steps acquire 1, acquire 2, release 1, drop 2; p2 holds 1
quorum lock shared owner: p1 holds 10 as x; p2 holds 2 as x; p3 holds 2
quorum lock shared owner in one process: p1 holds 10 checks 5 as x; p1 waits 30 from 2 holds 2 as x; p2 holds 20
quorum lock shared owner, several calls: p2 from 1000 holds 980; p1 holds 20 from 1003 as x; p1 holds 2 from 1004 as x; p1 waits 1028 from 1005 as x
quorum mutex acquire: p1 holds 2; p2 holds 2 | lose_reply p1 s1; refuse s1 100
quorum guard acquire: p1 holds 2 completes; p2 holds 2 completes | lose_reply p1 s1; refuse s1 100; readonly s1 100
cluster lock watchdog while its slot moves: p1 patient 100 holds 1500 lease 300 | move_slot 1000
cluster lock addresses that are swapped: p1 holds 1 times 4 gap 50 in_by 700 | swap s1 s3 8000
cluster read_write watchdog while its slot moves: p1 reads 350 lease 300; p2 writes 1 | move_slot 100
sync read_write extend, unconfirmed: p1 linked writes 10 lease 1000 extends 2000 stays 500; p2 reads 1 | unlink 1200
]]

local worlds = {}
for row in TABLE:gmatch "[^\n]+" do worlds[#worlds + 1] = row end
return worlds
