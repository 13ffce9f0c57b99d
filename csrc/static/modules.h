/* The Lua modules in lua/, which tools/embed_modules.lua embeds in a C file. */
#ifndef HF_MODULES_H
#define HF_MODULES_H

#include <stddef.h>

typedef struct hf_lua_module {
    const char *name;       /* or NULL at the end of the list */
    const char *chunk_name; /* for error messages, such as "@holdfast/lock.lua" */
    const unsigned char *source;
    size_t size;
} hf_lua_module;

extern const hf_lua_module hf_lua_modules[];

#endif
