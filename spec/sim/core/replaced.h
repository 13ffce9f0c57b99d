/* Part of kind.c: replaced programs. */

#include <stdlib.h>

static struct {
    hf_program program;
    const char *text;
} replaced[HF_PROGRAMS];

bool hf_program_replace(const char *name, const char *sha1, const char *text, size_t length) {
    for (int id = 0; id < HF_PROGRAMS; id++) {
        if (strcmp(hf_program_table[id].name, name) != 0) continue;
        replaced[id].program =
            (hf_program){.name = hf_program_table[id].name, .sha1 = strdup(sha1), .length = length};
        replaced[id].text = strdup(text);
        return true;
    }
    return false;
}

static const hf_program *current_program(int id) {
    return replaced[id].text ? &replaced[id].program : &hf_program_table[id];
}

static const char *current_segment(const hf_program *program, size_t i) {
    for (int id = 0; id < HF_PROGRAMS; id++) {
        if (program == &replaced[id].program) return i == 0 ? replaced[id].text : NULL;
    }
    return hf_segment_table[program->segments[i]];
}
