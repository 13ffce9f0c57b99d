# make            the module for Lua 5.4 and for LuaJIT, and the core as a static library
# make demo       the flash sale on a throw-away redis-server
# make demo-quorum      five servers, of which three are killed one after the other
# make demo-openresty   the handlers of examples/openresty under a burst
# make test       all that a contributor runs; its last line is "N passed, N failed"
# make check      the slower rest: sanitizers, valgrind, clang, static analysis
# make nightly    the simulator and the chaos from random seeds, until something is found
# make chaos      processes and a server under faults; HOLDFAST_CHAOS_SECONDS=60 says for how long
# make bench      the ratios of the quality bars
# make interop    one key for holdfast, Redisson, node-redisson, redis-py and node-redlock; needs a JDK, Maven and npm
# make install    PREFIX=/usr/local, DESTDIR=

PREFIX ?= /usr/local
BUILD := build
CC = gcc
WARNINGS = -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Werror
OPTIMIZE = -O2 -g
SANITIZE =
CFLAGS = -std=c11 -D_GNU_SOURCE $(OPTIMIZE) -fvisibility=hidden -fPIC $(WARNINGS) $(SANITIZE) -Icsrc/core -Icsrc/posix
LDFLAGS = -shared $(SANITIZE)
HIREDIS_A = $(firstword $(wildcard /usr/lib/*/libhiredis.a /usr/lib/libhiredis.a /usr/local/lib/libhiredis.a))

config = $(or $(shell pkg-config $(1) $(2) 2>/dev/null),$(3))
CFLAGS_lua5.4 := $(call config,--cflags,lua5.4,-I/usr/include/lua5.4)
CFLAGS_luajit := $(call config,--cflags,luajit,-I/usr/include/luajit-2.1)
LUA_DIR_lua5.4 = 5.4
LUA_DIR_luajit = 5.1
FLAVOURS = lua5.4 luajit

CORE := $(wildcard csrc/core/*.c)
POSIX := $(wildcard csrc/posix/*.c)
BINDING := $(wildcard csrc/lua/*.c)
PROCESS := $(wildcard csrc/process/*.c)
PROGRAMS := $(wildcard csrc/programs/*.lua)
LUA_FILES := $(wildcard lua/holdfast/*.lua)
COMMAND_FILES := $(wildcard lua/holdfast/command/*.lua)
UNIT := $(patsubst spec/unit/%.c,%,$(wildcard spec/unit/test_*.c))

core_objects := $(CORE:%.c=$(BUILD)/obj/%.o)
shared_objects := $(core_objects) $(POSIX:%.c=$(BUILD)/obj/%.o)
MODULES := $(if $(BINDING),$(FLAVOURS:%=$(BUILD)/%/holdfast/core.so)) $(FLAVOURS:%=$(BUILD)/%/holdfast/process.so)
SUPPORT := $(FLAVOURS:%=$(BUILD)/%/spec/support/sys.so) $(BUILD)/chaos/proxy
UNIT_PROGRAMS := $(UNIT:%=$(BUILD)/unit/%)

.PHONY: build unit-programs demo demo-quorum demo-openresty test check nightly bench interop lint docs unit spec memerr \
        asan tsan valgrind clang analyse gc model sim sim-defects fuzz-build chaos format install clean embed
.DEFAULT_GOAL := build
.SECONDARY:

build: $(MODULES) $(SUPPORT) $(BUILD)/libholdfast_core.a

# objects: the core and the posix driver once, the binding once for each Lua

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/libholdfast_core.a: $(core_objects)
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $^

define flavour_rules
$(BUILD)/obj/$(1)/%.o: %.c
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(CFLAGS_$(1)) -MMD -MP -c $$< -o $$@

$(BUILD)/$(1)/holdfast/core.so: $(shared_objects) $(BINDING:%.c=$(BUILD)/obj/$(1)/%.o)
	@mkdir -p $$(@D)
	$$(CC) $$(LDFLAGS) $$^ -lhiredis -lssl -lcrypto -lpthread -o $$@

$(BUILD)/$(1)/holdfast/process.so: $(PROCESS:%.c=$(BUILD)/obj/$(1)/%.o)
	@mkdir -p $$(@D)
	$$(CC) $$(LDFLAGS) $$^ -lm -o $$@

$(BUILD)/$(1)/spec/support/sys.so: $(BUILD)/obj/$(1)/spec/support/sys.o
	@mkdir -p $$(@D)
	$$(CC) $$(LDFLAGS) $$^ -lpthread -lm -o $$@
endef
$(foreach flavour,$(FLAVOURS),$(eval $(call flavour_rules,$(flavour))))

$(BUILD)/chaos/proxy: spec/chaos/proxy.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $< -o $@

# the core with deliberate defects that can be switched on, for the simulator and the chaos runs alone

sim-defects:
	@$(MAKE) -s BUILD=$(BUILD)/sim "CFLAGS=$(CFLAGS) -DHF_DEFECTS" $(FLAVOURS:%=$(BUILD)/sim/%/holdfast/core.so)

sim: build sim-defects
	@tools/suites sim

nightly: build
	@tools/nightly

# HOLDFAST_CHAOS_SECONDS=60, HOLDFAST_CHAOS_SEED=1
chaos: build sim-defects
	@tools/suites chaos

embed:
	lua5.4 tools/embed.lua

csrc/core/programs_embedded.h: $(PROGRAMS) tools/embed.lua
	lua5.4 tools/embed.lua

$(core_objects): $(if $(PROGRAMS),csrc/core/programs_embedded.h)

# unit programs: the core and the static hiredis, with allocations that can be made to fail

WRAP = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup

$(BUILD)/unit/%: $(BUILD)/obj/spec/unit/%.o $(BUILD)/obj/spec/unit/memerr.o $(BUILD)/libholdfast_core.a
	@mkdir -p $(@D)
	$(CC) $(SANITIZE) $(WRAP) $(filter %.o,$^) $(BUILD)/libholdfast_core.a $(HIREDIS_A) $(LIBRARIES) -o $@

# those of the driver
$(BUILD)/unit/test_net $(BUILD)/unit/test_tls: $(POSIX:%.c=$(BUILD)/obj/%.o)
$(BUILD)/unit/test_net $(BUILD)/unit/test_tls: LIBRARIES = -lssl -lcrypto -lpthread
$(BUILD)/unit/test_net: WRAP += -Wl,--wrap=getaddrinfo

unit-programs: $(UNIT_PROGRAMS)

# fuzzing harnesses: all the code compiled by clang with its sanitizers, in a directory of its own

FUZZ := $(patsubst spec/fuzz/%.c,%,$(wildcard spec/fuzz/*.c))
FUZZ_FLAGS = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

fuzz-build:
	@$(MAKE) -s BUILD=$(BUILD)/fuzz CC=clang "SANITIZE=$(FUZZ_FLAGS) -fsanitize=fuzzer-no-link" "OPTIMIZE=-O1 -g" \
	    $(FUZZ:%=$(BUILD)/fuzz/harness/%)

$(BUILD)/obj/spec/fuzz/%.o: CFLAGS += -Ispec/unit $(CFLAGS_lua5.4)

$(BUILD)/harness/options: $(POSIX:%.c=$(BUILD)/obj/%.o) $(BINDING:%.c=$(BUILD)/obj/lua5.4/%.o)

$(BUILD)/harness/%: $(BUILD)/obj/spec/fuzz/%.o $(BUILD)/obj/spec/unit/memerr.o $(BUILD)/libholdfast_core.a
	@mkdir -p $(@D)
	$(CC) $(FUZZ_FLAGS) -fsanitize=fuzzer $(WRAP) $(filter %.o,$^) $(BUILD)/libholdfast_core.a $(HIREDIS_A) \
	    $(call config,--libs,lua5.4,-llua5.4) -lssl -lcrypto -lpthread -ldl -lm -o $@

# what people type

demo:
	@tools/setup.sh demo
	@$(MAKE) -s build
	@LUA_PATH="./?.lua;./lua/?.lua;./lua/?/init.lua;;" LUA_CPATH="./$(BUILD)/lua5.4/?.so;;" lua5.4 examples/flash_sale.lua

demo-quorum:
	@tools/setup.sh demo
	@$(MAKE) -s build
	@LUA_PATH="./?.lua;./lua/?.lua;./lua/?/init.lua;;" LUA_CPATH="./$(BUILD)/lua5.4/?.so;;" lua5.4 examples/quorum_demo.lua

demo-openresty:
	@tools/setup.sh demo-openresty
	@$(MAKE) -s build
	@LUA_PATH="./?.lua;./lua/?.lua;./lua/?/init.lua;;" LUA_CPATH="./$(BUILD)/lua5.4/?.so;;" \
	    lua5.4 examples/openresty/demo.lua

test:
	@tools/suites test

check:
	@tools/suites check

unit memerr:
	@tools/suites unit

spec lint docs asan tsan valgrind clang analyse gc model fuzz:
	@tools/suites $@

$(BUILD)/bench/baseline: bench/baseline.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $< -lhiredis -o $@

bench: build $(BUILD)/bench/baseline
	@bench/run

interop: build
	@spec/interop/run

install: build
	install -d $(DESTDIR)$(PREFIX)/lib/lua/5.4/holdfast $(DESTDIR)$(PREFIX)/lib/lua/5.1/holdfast
	for flavour in $(FLAVOURS); do \
	    version=5.4; [ $$flavour = lua5.4 ] || version=5.1; \
	    install -m 755 $(BUILD)/$$flavour/holdfast/core.so $(DESTDIR)$(PREFIX)/lib/lua/$$version/holdfast/ && \
	    install -d $(DESTDIR)$(PREFIX)/share/lua/$$version/holdfast && \
	    install -m 755 $(BUILD)/$$flavour/holdfast/process.so $(DESTDIR)$(PREFIX)/lib/lua/$$version/holdfast/ && \
	    install -m 644 $(LUA_FILES) $(DESTDIR)$(PREFIX)/share/lua/$$version/holdfast/ && \
	    install -d $(DESTDIR)$(PREFIX)/share/lua/$$version/holdfast/command && \
	    install -m 644 $(COMMAND_FILES) $(DESTDIR)$(PREFIX)/share/lua/$$version/holdfast/command/ || exit 1; \
	done
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 bin/holdfast $(DESTDIR)$(PREFIX)/bin/
	install -m 644 docs/holdfast.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -m 644 completions/holdfast.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/holdfast
	install -m 644 completions/_holdfast $(DESTDIR)$(PREFIX)/share/zsh/site-functions/

format:
	clang-format -i csrc/*/*.[ch] spec/unit/*.[ch] spec/support/*.c spec/chaos/*.c bench/*.c

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
