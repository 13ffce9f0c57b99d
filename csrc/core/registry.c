/* The one file that names all operations, topologies and deciders. */
#include "link/cluster.h"
#include "link/nodes.h"
#include "link/sentinel.h"
#include "link/shards.h"
#include "op/acquire.h"
#include "op/alone.h"
#include "op/batch.h"
#include "op/calls.h"
#include "op/latch.h"
#include "op/pause.h"
#include "op/plain_semaphore.h"
#include "quorum/quorum.h"

const hf_op_class *const hf_op_classes[] = {
    [HF_OP_ACQUIRE] = &hf_acquire_class,
    [HF_OP_RELEASE] = &hf_release_class,
    [HF_OP_COMPLETE] = &hf_complete_class,
    [HF_OP_EXTEND] = &hf_extend_class,
    [HF_OP_CHECK] = &hf_check_class,
    [HF_OP_FORCE] = &hf_force_class,
    [HF_OP_INFO] = &hf_info_class,
    [HF_OP_TTL] = &hf_ttl_class,
    [HF_OP_PING] = &hf_ping_class,
    [HF_OP_COMMAND] = &hf_command_class,
    [HF_OP_WRITE_BACK] = &hf_raise_class,
    [HF_OP_SET] = &hf_set_class,
    [HF_OP_PAUSE] = &hf_pause_class,
    [HF_OP_SET_COUNT] = &hf_set_count_class,
    [HF_OP_COUNT_DOWN] = &hf_count_down_class,
    [HF_OP_COUNT] = &hf_count_class,
    [HF_OP_AWAIT] = &hf_await_class,
    [HF_OP_DELETE] = &hf_delete_class,
    [HF_OP_TAKE] = &hf_take_class,
    [HF_OP_GIVE] = &hf_give_class,
    [HF_OP_DRAIN] = &hf_drain_class,
    [HF_OP_ACQUIRE_ALL] = &hf_acquire_all_class,
    [HF_OP_RELEASE_ALL] = &hf_release_all_class,
};

const hf_topology *const hf_topologies[] = {
    [HF_MODE_ONE] = &hf_single,    [HF_MODE_SENTINEL] = &hf_sentinel_topology,
    [HF_MODE_QUORUM] = &hf_single, /* of each member; the quorum itself has no key */
    [HF_MODE_SHARDS] = &hf_shards, [HF_MODE_CLUSTER] = &hf_cluster_topology,
};

const hf_decider *const hf_deciders[] = {
    [HF_MODE_ONE] = &hf_alone,    [HF_MODE_SENTINEL] = &hf_alone, [HF_MODE_QUORUM] = &hf_majority,
    [HF_MODE_SHARDS] = &hf_alone, [HF_MODE_CLUSTER] = &hf_alone,
};
