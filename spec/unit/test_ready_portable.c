/*
 * test_ready.c for systems without epoll, with the code for these compiled here.
 */
#ifndef HF_PORTABLE
#define HF_PORTABLE
#endif
#define hf_ready_new portable_ready_new
#define hf_ready_free portable_ready_free
#define hf_ready_forget portable_ready_forget
#define hf_ready_fd portable_ready_fd
#define hf_ready_watch portable_ready_watch
#define hf_ready_unwatch portable_ready_unwatch
#define hf_ready_by portable_ready_by
#include "../../csrc/posix/ready.c"
#include "test_ready.c"
