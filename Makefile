define HELP
make                 build for each Lua whose headers are installed, into build/; also the core as a static library
make demo            a flash sale on a throw-away redis-server; demo-quorum, demo-openresty: two other demos
make test            what every change has to pass; the last line is "N passed, N failed"
make check           the slower tests, before a release: sanitizers, simulator, chaos, other Luas, servers and machines
make PART            only one part: $(wordlist 1,12,$(call parts))
                     $(wordlist 13,99,$(call parts))
make chaos           clients and a server under faults, for HOLDFAST_CHAOS_SECONDS=60
make nightly         simulator and chaos from random seeds, until something is found; shaky: specs on a busy machine
make mutants         changes one place at a time and runs the tests, for hours; MUTANTS="--part 1/50"
make soak            locks of every kind under faults for SECONDS=60; fails if memory, descriptors or waits grow
make bench           speed against the quality bars; STRICT=1: a missed bar fails; bench-report: beside other libraries
make interop         one key shared with Redisson, node-redisson, redis-py and node-redlock; needs a JDK, Maven and npm
make programs        writes each server program whole to build/programs; make embed: into the C sources
make format          formats the C sources with clang-format
make list-tests      prints the name of every test, with its file
make install         PREFIX=/usr/local DESTDIR=; make uninstall; make static: the command as one file
make dist            the tarball, its rockspec, SBOM and SHA256SUMS; make deb opm: packages; make release: the checklist
make site            the documents as a site, in build/site; make pictures: docs/pictures from real runs
endef

# CC, CPPFLAGS, CFLAGS and LDFLAGS are taken from the environment or the command line. FLAVOURS="lua5.4 luajit" builds
# only for these; CFLAGS_luajit=-I/opt/luajit/include/luajit-2.1 says where the headers of one are.
# HIREDIS_DIR=/opt/hiredis is a directory with another hiredis than the system's, in include and lib.
# WERROR=1: a warning fails the build. V=1: the build shows its commands in full.
# HARDENING= and LINK_HARDENING= build without the flags that Debian hardens its packages with; CFLAGS and LDFLAGS come
# after them and win.

PREFIX ?= /usr/local
LUA_SHARE_DIR = $(PREFIX)/share/lua
LUA_LIB_DIR = $(PREFIX)/lib/lua
BUILD := build
comma := ,
SYSTEM := $(shell uname -s)
ifeq ($(origin CC),default)
CC = $(if $(shell command -v gcc),gcc,cc)
endif
WARNINGS = -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes $(if $(WERROR),-Werror)
CFLAGS ?= -O2 -g
SANITIZE =
# CHECKED= builds without assertions, like an installed build
CHECKED := $(if $(filter bench bench-report,$(MAKECMDGOALS)),,1)
DEFINES = -D_GNU_SOURCE $(if $(CHECKED),,-DNDEBUG)
HIREDIS_INCDIR = $(HIREDIS_DIR:%=%/include)
HIREDIS_LIBDIR = $(HIREDIS_DIR:%=%/lib)
OPENSSL_INCDIR =
OPENSSL_LIBDIR =
outside = $(filter-out /usr/include /usr/lib /usr/lib/%,$(sort $(1)))
INCLUDES = -Icsrc -Icsrc/core -Icsrc/posix $(addprefix -isystem ,$(call outside,$(HIREDIS_INCDIR) $(OPENSSL_INCDIR)))
LIBRARY_PATH_FLAGS = $(addprefix -L,$(call outside,$(HIREDIS_LIBDIR) $(OPENSSL_LIBDIR)))
# Sanitizers check more than fortified functions, which they would not see through. Those need an optimised build; a
# distribution's compiler, or its flags, may ask for them already.
supported = $(foreach flag,$(1),$(shell $(CC) -Werror $(flag) -x c -c /dev/null -o /dev/null 2>/dev/null && echo $(flag)))
predefined := $(shell $(CC) $(CPPFLAGS) $(CFLAGS) -dM -E -x c /dev/null 2>/dev/null | grep -Eow '__OPTIMIZE__|_FORTIFY_SOURCE')
fortified := $(if $(filter __OPTIMIZE__,$(predefined)),$(if $(filter _FORTIFY_SOURCE,$(predefined)),,-D_FORTIFY_SOURCE=2))
HARDENING := $(if $(SANITIZE),,-fstack-protector-strong $(fortified) -Wformat -Werror=format-security \
    $(call supported,-fstack-clash-protection -fcf-protection))
LINK_HARDENING = $(if $(filter Darwin,$(SYSTEM)),,-Wl$(comma)-z$(comma)relro$(comma)-z$(comma)now)
# Some unit programs replace functions of the project, which a linker that optimises across files has inlined by then.
NO_LTO = -fno-lto
COMPILE = $(CC) -std=c11 $(DEFINES) $(HARDENING) $(CPPFLAGS) $(CFLAGS) $(NO_LTO) -fvisibility=hidden -fPIC $(WARNINGS) $(SANITIZE) $(INCLUDES)
HIREDIS = $(HIREDIS_DIR:%=-Wl$(comma)-rpath$(comma)%/lib) -lhiredis
# A module finds the functions of Lua in the interpreter that loads it; the linker of macOS needs a flag for that.
MODULE = $(if $(filter Darwin,$(SYSTEM)),-bundle -undefined dynamic_lookup,-shared)
LINK = $(CC) $(MODULE) $(HARDENING) $(CFLAGS) $(LINK_HARDENING) $(LDFLAGS) $(SANITIZE) $(LIBRARY_PATH_FLAGS)
HIREDIS_A = $(firstword $(wildcard $(addsuffix /libhiredis.a,$(HIREDIS_LIBDIR) /usr/lib/* /usr/lib /usr/local/lib)))

config = $(or $(shell pkg-config $(1) $(2) 2>/dev/null),$(3))
LUAS = lua5.1 lua5.2 lua5.3 lua5.4 lua5.5 luajit
CFLAGS_lua5.1 := $(call config,--cflags,lua5.1,-I/usr/include/lua5.1)
CFLAGS_lua5.2 := $(call config,--cflags,lua5.2,-I/usr/include/lua5.2)
CFLAGS_lua5.3 := $(call config,--cflags,lua5.3,-I/usr/include/lua5.3)
CFLAGS_lua5.4 := $(call config,--cflags,lua5.4,-I/usr/include/lua5.4)
CFLAGS_lua5.5 := $(call config,--cflags,lua5.5,-I/usr/include/lua5.5)
CFLAGS_luajit := $(call config,--cflags,luajit,-I/usr/include/luajit-2.1)
has_headers = $(wildcard $(addsuffix /lua.h,$(patsubst -I%,%,$(filter -I%,$(CFLAGS_$(1))))))
FLAVOURS := $(foreach lua,$(LUAS),$(if $(call has_headers,$(lua)),$(lua)))
# the Luas that can run here, the preferred one first; LUA runs the tools and the demos
INTERPRETERS := $(foreach lua,lua5.4 lua5.5 lua5.3 luajit lua5.2 lua5.1,$(if $(shell command -v $(lua)),$(lua)))
LUA := $(firstword $(INTERPRETERS) lua)
RUN = LUA_PATH="./?.lua;./lua/?.lua;./lua/?/init.lua;;" LUA_CPATH="./$(BUILD)/$(LUA)/?.so;;" $(LUA)

VERSION := $(shell sed -n 's/^return "\(.*\)"$$/\1/p' lua/holdfast/version.lua)

CORE := $(wildcard csrc/core/*.c csrc/core/*/*.c)
POSIX := $(wildcard csrc/posix/*.c)
BINDING := $(wildcard csrc/lua/*.c)
PROCESS := $(wildcard csrc/process/*.c)
PROGRAMS := $(wildcard csrc/programs/*/*.lua)
LUA_FILES := $(patsubst lua/%,%,$(shell find lua -name '*.lua'))
LUA_FOLDERS := $(sort $(patsubst %/,%,$(dir $(LUA_FILES))))
UNIT := $(patsubst spec/unit/%.c,%,$(wildcard spec/unit/test_*.c))

core_objects := $(CORE:%.c=$(BUILD)/obj/%.o)
shared_objects := $(core_objects) $(POSIX:%.c=$(BUILD)/obj/%.o)
MODULES := $(FLAVOURS:%=$(BUILD)/%/holdfast/core.so) $(FLAVOURS:%=$(BUILD)/%/holdfast/process.so)
SUPPORT := $(FLAVOURS:%=$(BUILD)/%/spec/support/sys.so) $(BUILD)/chaos/proxy $(BUILD)/support/clock.so $(BUILD)/support/rename.so
UNIT_PROGRAMS := $(UNIT:%=$(BUILD)/unit/%)

# PARTS are run by tools/suites; each of SCRIPTS is a file in tools.
PARTS = analyse asan browser chaos check clang coverage crash demos docs explore fencing fuzz gc hiredis lint long luas \
    machines model named-mutants orders packages roots servers sim spec systems test tsan unit valgrind
SCRIPTS = nightly pictures release shaky site
DEMOS = demo demo-openresty demo-quorum

.PHONY: $(PARTS) $(SCRIPTS) $(DEMOS) bench bench-report build clean deb dist embed format fuzz-build help install \
    interop list-tests modules mutants opm porcupine programs rock rock-install show sim-mutants soak static uninstall \
    unit-programs
.DEFAULT_GOAL := build
.SECONDARY:

modules: $(MODULES)
	@$(if $(strip $(FLAVOURS)),:,echo "no headers of Lua are here: docs/how-to/install.md names the packages" >&2; exit 1)

build: modules $(SUPPORT) $(BUILD)/libholdfast_core.a

# A path in a recipe is one word. A character that would make several of it, or something else, is refused before
# anything runs.
PATHS = PREFIX DESTDIR BUILD LUA_SHARE_DIR LUA_LIB_DIR COMPLETION_DIR ZSH_DIR LUADIR LIBDIR LUA_INCDIR HIREDIS_DIR \
    HIREDIS_INCDIR HIREDIS_LIBDIR OPENSSL_INCDIR OPENSSL_LIBDIR
hash := \#
dollar := $$
REFUSED = " ' ` ; & | < > ( ) * ? [ \ $(hash) $(dollar)
refused_in = $(if $(filter-out 1,$(words x$(1)x)),a space,$(firstword $(foreach each,$(REFUSED),$(findstring $(each),$(1)))))
check_path = $(if $(call refused_in,$($(1))),$(error $(1) contains $(call refused_in,$($(1))), which make cannot handle: "$($(1))"))
$(foreach path,$(PATHS),$(call check_path,$(path)))

# A command is shown by what it makes; V=1 shows it in full.
silent = $(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS))))
brief = $(if $(filter-out 0,$(V)),,@$(if $(silent),,$(info $(1) $@)))

# Another user cannot build where root has built, so what root builds for an install goes to the sources' owner.
define make_folder
	@mkdir -p $(@D) 2>/dev/null && [ -w $(@D) ] || { echo "you may not write to $(@D): take it over" \
	    "(sudo chown -R $$(id -un) $(BUILD)), remove it, or build elsewhere (make BUILD=DIR)" >&2; exit 1; }
endef
owner = "$$(ls -dln . | awk '{ print $$3 ":" $$4 }')"
define leave_to_owner # FOLDER
	$(if $(filter /%,$(BUILD)),,@[ "$$(id -u)" != 0 ] || \
	    { chown -h $(owner) $(BUILD) $(BUILD)/flags && chown -Rh $(owner) $(1); } 2>/dev/null || true)
endef

# objects: the core and the posix driver once, the binding once for each Lua; rebuilt if the flags change

$(shell mkdir -p $(BUILD) 2>/dev/null && { echo '$(COMPILE)' | cmp -s - $(BUILD)/flags || echo '$(COMPILE)' >$(BUILD)/flags; } 2>/dev/null)

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	$(make_folder)
	$(call brief,CC)$(COMPILE) -MMD -MP -c $< -o $@

$(BUILD)/libholdfast_core.a: $(core_objects)
	$(make_folder)
	@rm -f $@
	$(call brief,AR)$(AR) rcs $@ $^

define flavour_rules
$(BUILD)/obj/$(1)/%.o: %.c $(BUILD)/flags
	$$(make_folder)
	$$(call brief,CC)$$(COMPILE) $$(CFLAGS_$(1)) -MMD -MP -c $$< -o $$@

$(BUILD)/$(1)/holdfast/core.so: $(shared_objects) $(BINDING:%.c=$(BUILD)/obj/$(1)/%.o)
	$$(make_folder)
	$$(call brief,LINK)$$(LINK) $$^ $$(HIREDIS) -lssl -lcrypto -lpthread -lm -o $$@

$(BUILD)/$(1)/holdfast/process.so: $(PROCESS:%.c=$(BUILD)/obj/$(1)/%.o) $(addprefix $(BUILD)/obj/csrc/posix/,system.o crash.o job.o)
	$$(make_folder)
	$$(call brief,LINK)$$(LINK) $$^ -lpthread -lm -o $$@

$(BUILD)/$(1)/spec/support/sys.so: $(BUILD)/obj/$(1)/spec/support/sys.o
	$$(make_folder)
	$$(call brief,LINK)$$(LINK) $$^ -lpthread -lm -o $$@
endef
$(foreach flavour,$(FLAVOURS),$(eval $(call flavour_rules,$(flavour))))

# the command as one file, with Lua 5.4 and the static libraries of the system: docs/how-to/containers.md

STATIC_OBJECTS = $(shared_objects) $(PROCESS:%.c=$(BUILD)/obj/lua5.4/%.o) $(BINDING:%.c=$(BUILD)/obj/lua5.4/%.o) \
    $(BUILD)/obj/lua5.4/csrc/static/main.o $(BUILD)/obj/static/modules.o
STATIC_LIBRARIES = -llua5.4 -lhiredis -lssl -lcrypto -lpthread -lm -ldl

static: $(BUILD)/static/holdfast

COMMAND_FILES = $(filter-out holdfast/testing/%,$(LUA_FILES))

$(BUILD)/obj/static/modules.c: tools/embed_modules.lua $(COMMAND_FILES:%=lua/%)
	$(make_folder)
	$(call brief,EMBED)$(LUA) tools/embed_modules.lua $(COMMAND_FILES) >$@.new && mv $@.new $@

$(BUILD)/obj/static/modules.o: $(BUILD)/obj/static/modules.c
	$(call brief,CC)$(COMPILE) -c $< -o $@

$(BUILD)/static/holdfast: $(STATIC_OBJECTS)
	$(make_folder)
	$(call brief,LINK)$(CC) -static $(HARDENING) $(CFLAGS) $(LINK_HARDENING) $(LDFLAGS) $(LIBRARY_PATH_FLAGS) -Wl,--gc-sections -s $^ $(STATIC_LIBRARIES) -o $@

# without a sanitizer: the server that loads the clock has none
$(BUILD)/support/%.so: spec/support/%.c
	$(make_folder)
	$(call brief,CC)$(CC) -std=c11 -D_GNU_SOURCE -O2 -fPIC $(WARNINGS) -shared $< -ldl -o $@

$(BUILD)/chaos/proxy: spec/chaos/proxy.c
	$(make_folder)
	$(call brief,CC)$(COMPILE) $(LDFLAGS) $(NO_LTO) $< -o $@

# only for the simulator and chaos: the core with mutants that can be switched on, from a copy of its sources

SIM_FLAVOURS = $(filter lua5.4 luajit,$(FLAVOURS))
SIM_BUILD = $(abspath $(BUILD))/sim

sim-mutants: $(if $(PROGRAMS),csrc/programs/embedded.h)
	+@mkdir -p $(BUILD)/sim/tree # also under make -n, which goes on there
	@$(LUA) spec/sim/sources.lua $(BUILD)/sim/tree
	@ln -sfn $(CURDIR)/lua $(BUILD)/sim/tree/lua
	@$(MAKE) -s -C $(BUILD)/sim/tree -f $(CURDIR)/Makefile BUILD=$(SIM_BUILD) $(SIM_FLAVOURS:%=$(SIM_BUILD)/%/holdfast/core.so)

mutants:
	@nice lua5.4 spec/mutants/run.lua $(MUTANTS)
	@lua5.4 spec/mutants/run.lua --report $(MUTANTS)

porcupine:
	@command -v go >/dev/null || { echo "go is not installed" >&2; exit 1; }
	@rm -f $(BUILD)/porcupine
	@mkdir -p $(BUILD)
	@cd spec/porcupine && go vet . && go test . && go build -o $(abspath $(BUILD))/porcupine .

chaos: build sim-mutants

SECONDS = 60

soak: build
	@luajit spec/soak/run.lua $(SECONDS)

programs:
	@rm -rf $(BUILD)/programs
	@mkdir -p $(BUILD)/programs
	@$(LUA) tools/embed.lua --expand $(BUILD)/programs

embed:
	$(LUA) tools/embed.lua
	$(LUA) tools/embed_page.lua

# In a fresh clone it is up to date, whatever the times of the files. tools/suites compares it with the programs and
# sets KEEP_EMBEDDED, because a check must not repair what it checks.
csrc/programs/embedded.h: $(PROGRAMS) tools/embed.lua
	$(if $(KEEP_EMBEDDED),,$(if $(INTERPRETERS),$(LUA) tools/embed.lua))
	$(if $(KEEP_EMBEDDED),,touch $@)

$(core_objects): | $(if $(PROGRAMS),csrc/programs/embedded.h)

# unit programs: the core and the static hiredis, with allocations that tests can make fail

# the programs themselves are not optimised: that takes a third of the time
$(BUILD)/obj/spec/unit/%.o: CFLAGS += -O0 -U_FORTIFY_SOURCE
# nor checked by UBSan, which takes another third
$(BUILD)/obj/spec/unit/%.o: override SANITIZE += -fno-sanitize=undefined,float-cast-overflow

WRAP = $(WRAPPED:%=-Wl,--wrap=%)
WRAPPED = malloc calloc realloc strdup free

$(BUILD)/unit/%: $(BUILD)/obj/spec/unit/%.o $(BUILD)/obj/spec/unit/memerr.o $(BUILD)/libholdfast_core.a
	$(make_folder)
	$(call brief,LINK)$(CC) $(CFLAGS) $(LDFLAGS) $(NO_LTO) $(SANITIZE) $(WRAP) $(filter %.o,$^) $(BUILD)/libholdfast_core.a $(HIREDIS_A) $(LIBRARIES) -o $@

# functions that the driver's unit programs replace
wrapped_in = $(shell sed -n 's/^WRAP.[^,]*, \([^,]*\),.*/\1/p' $(1))
ORDERS = orders orders_system orders_server
DRIVER_PROGRAMS = test_driver test_driver_calls test_driver_fork
CRASH_PROGRAMS = test_crash_record test_crash_job
DRIVER_UNITS = $(DRIVER_PROGRAMS) test_orders test_margins test_net test_tls test_system test_ready test_ready_portable $(CRASH_PROGRAMS)
$(DRIVER_UNITS:%=$(BUILD)/unit/%): $(POSIX:%.c=$(BUILD)/obj/%.o)
$(DRIVER_UNITS:%=$(BUILD)/unit/%): LIBRARIES = -lssl -lcrypto -lpthread
$(BUILD)/unit/test_net: WRAPPED += getaddrinfo pthread_mutex_init pthread_mutex_destroy
$(CRASH_PROGRAMS:%=$(BUILD)/unit/%): WRAPPED += renameat fdopendir opendir readdir readlinkat __readlinkat_chk hf_now
$(BUILD)/unit/test_tls: WRAPPED += ERR_clear_error SSL_CTX_set_options SSL_do_handshake SSL_read SSL_write
$(BUILD)/unit/test_tls: WRAPPED += $(addprefix pthread_rwlock_,rdlock wrlock trywrlock unlock)
$(BUILD)/unit/test_system: WRAPPED += madvise pthread_create
$(DRIVER_PROGRAMS:%=$(BUILD)/unit/%): $(BUILD)/obj/spec/unit/syserr.o
$(DRIVER_PROGRAMS:%=$(BUILD)/unit/%): WRAPPED += getaddrinfo freeaddrinfo gethostname hf_now hf_cond_wait
$(DRIVER_PROGRAMS:%=$(BUILD)/unit/%): WRAPPED += hf_recv_wait $(call wrapped_in,spec/unit/syserr.c)
ORDERED = $(BUILD)/unit/test_orders $(BUILD)/unit/test_margins
$(ORDERED): $(ORDERS:%=$(BUILD)/obj/spec/unit/%.o)
$(ORDERED): WRAPPED += $(call wrapped_in,spec/unit/orders_system.c)

unit-programs: $(UNIT_PROGRAMS)

# fuzzing harnesses: all code compiled by clang with its sanitizers, in a separate directory

FUZZ := $(patsubst spec/fuzz/%.c,%,$(wildcard spec/fuzz/*.c))
FUZZ_FLAGS = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

fuzz-build:
	@$(MAKE) -s BUILD=$(BUILD)/fuzz CC=clang "SANITIZE=$(FUZZ_FLAGS) -fsanitize=fuzzer-no-link" "CFLAGS=-O1 -g" \
	    $(FUZZ:%=$(BUILD)/fuzz/harness/%)

$(BUILD)/obj/spec/fuzz/%.o: INCLUDES += -Ispec/unit $(CFLAGS_lua5.4)

$(BUILD)/harness/options: $(POSIX:%.c=$(BUILD)/obj/%.o) $(BINDING:%.c=$(BUILD)/obj/lua5.4/%.o)

$(BUILD)/harness/%: $(BUILD)/obj/spec/fuzz/%.o $(BUILD)/obj/spec/unit/memerr.o $(BUILD)/libholdfast_core.a
	$(make_folder)
	$(call brief,LINK)$(CC) $(FUZZ_FLAGS) -fsanitize=fuzzer $(WRAP) $(filter %.o,$^) $(BUILD)/libholdfast_core.a $(HIREDIS_A) \
	    $(call config,--libs,lua5.4,-llua5.4) -lssl -lcrypto -lpthread -ldl -lm -o $@

# what people type

# The set-up may install the first Lua, so a second make, started after it, runs what depends on Lua.
demo: SHOW = examples/flash_sale.lua
demo-quorum: SHOW = examples/quorum_demo.lua
demo-openresty: SHOW = examples/openresty/demo.lua

$(DEMOS):
	@tools/setup.sh $(@:demo-quorum=demo)
	@[ -e $(BUILD)/libholdfast_core.a ] || echo "building holdfast first, which takes a minute or two; the demo then takes ten seconds"
	@$(MAKE) -s show SHOW=$(SHOW)

show: build
	@$(RUN) $(SHOW)

parts = $(filter-out chaos check test,$(PARTS))
help:
	@: $(info $(HELP))

list-tests:
	@lua5.4 tools/list_tests.lua

$(PARTS):
	@tools/suites $@

nightly pictures: build

$(SCRIPTS):
	@tools/$@

BASELINES = $(BUILD)/bench/baseline $(BUILD)/bench/handoff_baseline

$(BASELINES): $(BUILD)/bench/%: bench/%.c
	$(make_folder)
	$(call brief,CC)$(COMPILE) $(LDFLAGS) $(LIBRARY_PATH_FLAGS) $< $(HIREDIS) -o $@

$(BUILD)/bench/observe: bench/observe.c $(BUILD)/libholdfast_core.a
	$(make_folder)
	$(call brief,CC)$(COMPILE) $(LDFLAGS) $(LIBRARY_PATH_FLAGS) $^ $(HIREDIS) -o $@

bench: build $(BASELINES) $(BUILD)/bench/observe
	@bench/run $(if $(STRICT),--strict)

# docs/explanation/performance.md: holdfast beside other libraries, which bench/peers/install fetches into build/peers
bench-report: build
	@bench/run peers
	@$(RUN) bench/performance.lua

interop: build
	@spec/interop/run

# Lua 5.1 loads what is built for LuaJIT, and the other way round.
version_of = $(patsubst lua%,%,$(1:luajit=lua5.1))
COMPLETION_DIR = $(PREFIX)/share/bash-completion/completions
ZSH_DIR = $(PREFIX)/share/zsh/site-functions

# The installed command runs with a Lua for which modules are installed, or with the LUA that was asked for.
installed_versions = $(foreach flavour,$(FLAVOURS),$(call version_of,$(flavour)))
served = $(foreach lua,$(INTERPRETERS),$(if $(filter $(call version_of,$(lua)),$(installed_versions)),$(lua)))
COMMAND_LUA = $(if $(filter command%,$(origin LUA)),$(LUA),$(firstword $(served) $(FLAVOURS)))
SHEBANG = $(notdir $(COMMAND_LUA))
# Lua 5.1 has no option that ignores LUA_INIT.
IGNORING = $(if $(filter %lua5.1,$(SHEBANG)),, -E)

define install_modules # BUILT,LIBRARIES,LUA FILES
	install -d $(2)/holdfast
	install -m 644 $(1)/holdfast/core.so $(1)/holdfast/process.so $(2)/holdfast/
	install -d $(addprefix $(3)/,$(LUA_FOLDERS))
	@$(if $(silent),:,echo 'install -m 644 lua/... $(3)/...')
	@for file in $(LUA_FILES); do install -m 644 lua/$$file $(3)/$$file || exit 1; done

endef
install_flavour = $(call install_modules,$(BUILD)/install/$(1),$(DESTDIR)$(LUA_LIB_DIR)/$(2),$(DESTDIR)$(LUA_SHARE_DIR)/$(2))

# Built in a separate folder, so programs that run from $(BUILD) are not disturbed.
install:
	@$(MAKE) BUILD=$(BUILD)/install CHECKED= modules
	$(call leave_to_owner,$(BUILD)/install)
	$(foreach flavour,$(FLAVOURS),$(call install_flavour,$(flavour),$(call version_of,$(flavour))))
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(COMPLETION_DIR) $(DESTDIR)$(ZSH_DIR)
	sed -e 's|^exec .* "$$0"|exec $(SHEBANG)$(IGNORING) "$$0"|' \
	    -e 's|^\(local SHARE_DIR, LIB_DIR\) = [^-]*|\1 = "$(abspath $(LUA_SHARE_DIR))", "$(abspath $(LUA_LIB_DIR))" |' \
	    bin/holdfast >$(DESTDIR)$(PREFIX)/bin/holdfast
	chmod 755 $(DESTDIR)$(PREFIX)/bin/holdfast
	sed 's/^\.Os$$/.Os holdfast $(VERSION)/' docs/holdfast.1 >$(DESTDIR)$(PREFIX)/share/man/man1/holdfast.1
	chmod 644 $(DESTDIR)$(PREFIX)/share/man/man1/holdfast.1
	install -m 644 completions/holdfast.bash $(DESTDIR)$(COMPLETION_DIR)/holdfast
	install -m 644 completions/_holdfast $(DESTDIR)$(ZSH_DIR)/

uninstall:
	rm -rf $(foreach version,5.1 5.2 5.3 5.4 5.5,\
	    $(DESTDIR)$(LUA_LIB_DIR)/$(version)/holdfast $(DESTDIR)$(LUA_SHARE_DIR)/$(version)/holdfast)
	rm -f $(DESTDIR)$(PREFIX)/bin/holdfast $(DESTDIR)$(PREFIX)/share/man/man1/holdfast.1 \
	    $(DESTDIR)$(COMPLETION_DIR)/holdfast $(DESTDIR)$(ZSH_DIR)/_holdfast

# The rock: luarocks sets LUA, LUA_INCDIR, LUADIR and LIBDIR. A module that the interpreter cannot load is not installed.

rock:
	@rm -rf $(BUILD)/rock
	@$(MAKE) BUILD=$(BUILD)/rock CHECKED= FLAVOURS=lua CFLAGS_lua=-I$(LUA_INCDIR) modules
	$(call leave_to_owner,$(BUILD)/rock)
	@tools/check_loads "$(LUA)" "$(BUILD)/rock/lua" "$(LUA_INCDIR)"

rock-install:
	$(call install_modules,$(BUILD)/rock/lua,$(LIBDIR),$(LUADIR))

# A release. DIST_URL is where the tarball will be; tools/rockspec_check.lua checks other places against FORGE.

FORGE = $(shell sed -n 's/^  homepage = "\(.*\)",/\1/p' holdfast-scm-1.rockspec)
DIST_URL = $(FORGE)/releases/download/v$(VERSION)

dist:
	@tools/dist $(VERSION) $(BUILD)/dist "$(DIST_URL)"

opm:
	@tools/opm $(VERSION) $(BUILD)/opm

deb: dist
	@tools/deb $(VERSION) $(BUILD)/dist $(BUILD)/deb

format:
	find csrc spec/unit spec/fuzz spec/support spec/chaos spec/sim bench -name '*.[ch]' -not -name embedded.h -print0 | \
	    xargs -0 clang-format -i

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
