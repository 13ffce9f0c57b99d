/* The files of `lua`, which tools/embed_modules.lua writes into a C file. */
#ifndef HF_MODULES_H
#define HF_MODULES_H

#include <stddef.h>

typedef struct hf_lua_module {
    const char *name;  /* NULL: the end of the list */
    const char *chunk; /* as messages name it: "@holdfast/lock.lua" */
    const unsigned char *text;
    size_t size;
} hf_lua_module;

extern const hf_lua_module hf_lua_modules[];

#endif
