/* Load for scripts/with-spdk: SPDK's own driver (include/spdk/nvme.h, nvme_kv.h) as the host of a key-value or of a block
 * namespace, on one queue and one polling core. It is built in SPDK's tree and prints a line of JSON.
 *
 * usage: kvdrive_load TRID CORE OPERATION DEPTH BYTES PLACES SECONDS TARGET
 *   OPERATION   fill (stores the key of every place once), set, get: pairs; write, read: blocks
 *   PLACES      keys, or pieces of BYTES bytes of the block namespace; chosen at random
 *   TARGET      number of the target's operating-system task, whose CPU time is counted while the load runs
 */
#include "spdk/stdinc.h"
#include "spdk/env.h"
#include "spdk/nvme.h"
#include "spdk/nvme_kv.h"

enum operation { FILL, SET, GET, WRITE, READ, OPERATIONS };
static const char *const operation_names[OPERATIONS] = { "fill", "set", "get", "write", "read" };

/* Latencies: 16 classes for each power of two of ticks. */
#define CLASSES (64 * 16)

struct load {
	struct spdk_nvme_ns *ns;
	struct spdk_nvme_qpair *queue;
	enum operation operation;
	uint32_t bytes, blocks;
	uint64_t places, random;
	uint64_t begun, done, failed, flying;
	uint64_t ticks, classes[CLASSES];
	bool is_over;
	clockid_t target;
};

struct slot {
	struct load *load;
	void *buffer;
	uint64_t since;
};

static void submit(struct slot *slot);

/* CPU time of all threads, in us. */
static double cpu_us(clockid_t of)
{
	struct timespec at;

	clock_gettime(of, &at);
	return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

static unsigned class_of(uint64_t ticks)
{
	unsigned power = 63 - __builtin_clzll(ticks | 16);
	return (power - 4) * 16 + (unsigned)(ticks >> (power - 4) & 15);
}

/* The upper end of a class, in ticks. */
static double end_of(unsigned class)
{
	return (double)(16 + class % 16 + 1) * (double)(1ull << class / 16);
}

static void completed(void *of, const struct spdk_nvme_cpl *completion)
{
	struct slot *slot = of;
	struct load *load = slot->load;
	uint64_t ticks = spdk_get_ticks() - slot->since;

	load->flying--;
	if (spdk_nvme_cpl_is_error(completion)) {
		load->failed++;
	} else {
		load->done++;
	}
	load->ticks += ticks;
	load->classes[class_of(ticks)]++;
	if (!load->is_over) {
		submit(slot);
	}
}

static uint64_t next_place(struct load *load)
{
	if (load->operation == FILL) {
		return load->begun % load->places;
	}
	/* A linear congruential generator of 64 bits; its high bits are the good ones. */
	load->random = load->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint64_t)((unsigned __int128)load->random * load->places >> 64);
}

static void submit(struct slot *slot)
{
	struct load *load = slot->load;
	uint64_t place = next_place(load);
	char key[17];
	int failure = 0;

	snprintf(key, sizeof(key), "%016" PRIx64, place);
	slot->since = spdk_get_ticks();
	switch (load->operation) {
	case FILL:
	case SET:
		failure = spdk_nvme_kv_store(load->ns, load->queue, key, 16, slot->buffer, load->bytes, completed, slot, 0);
		break;
	case GET:
		failure = spdk_nvme_kv_retrieve(load->ns, load->queue, key, 16, slot->buffer, load->bytes, completed, slot, 0);
		break;
	case WRITE:
		failure = spdk_nvme_ns_cmd_write(load->ns, load->queue, slot->buffer, place * load->blocks, load->blocks,
						 completed, slot, 0);
		break;
	default:
		failure = spdk_nvme_ns_cmd_read(load->ns, load->queue, slot->buffer, place * load->blocks, load->blocks,
						completed, slot, 0);
	}
	if (failure != 0) {
		fprintf(stderr, "kvdrive_load: a command is refused by the driver: %d\n", failure);
		exit(1);
	}
	load->begun++;
	load->flying++;
}

static int run(struct load *load, unsigned depth, double seconds)
{
	uint64_t a_second = spdk_get_ticks_hz(), began, now;
	struct slot *slots = calloc(depth, sizeof(*slots));

	for (unsigned i = 0; i < depth; i++) {
		slots[i].load = load;
		slots[i].buffer = spdk_zmalloc(load->bytes, 4096, NULL, SPDK_ENV_NUMA_ID_ANY, SPDK_MALLOC_DMA);
		if (slots[i].buffer == NULL) {
			fprintf(stderr, "kvdrive_load: no memory\n");
			return 1;
		}
		memset(slots[i].buffer, 'a' + i % 26, load->bytes);
	}
	double target = cpu_us(load->target), host = cpu_us(CLOCK_PROCESS_CPUTIME_ID);
	began = now = spdk_get_ticks();
	for (unsigned i = 0; i < depth; i++) {
		submit(&slots[i]);
	}
	while (load->flying > 0) {
		if (spdk_nvme_qpair_process_completions(load->queue, 0) < 0) {
			fprintf(stderr, "kvdrive_load: the connection is lost\n");
			return 1;
		}
		now = spdk_get_ticks();
		load->is_over = load->operation == FILL ? load->begun >= load->places
				: (double)(now - began) > seconds * (double)a_second;
	}

	target = cpu_us(load->target) - target;
	host = cpu_us(CLOCK_PROCESS_CPUTIME_ID) - host;

	uint64_t all = load->done + load->failed, seen = 0;
	unsigned class = 0;
	while (class < CLASSES - 1 && (seen += load->classes[class]) * 100 < all * 99) {
		class++;
	}
	double us = 1e6 / (double)a_second;
	printf("{\"per_s\": %.0f, \"failed\": %" PRIu64 ", \"mean_us\": %.2f, \"p99_us\": %.2f, "
	       "\"target_cpu_us\": %.3f, \"host_cpu_us\": %.3f}\n",
	       (double)load->done * (double)a_second / (double)(now - began), load->failed,
	       (double)load->ticks / (double)all * us, end_of(class) * us, target / (double)all, host / (double)all);
	return load->failed != 0;
}

int main(int count, char **words)
{
	struct spdk_env_opts env;
	struct spdk_nvme_transport_id at;
	struct load load = { .random = 1 };

	if (count != 9) {
		fprintf(stderr, "usage: kvdrive_load TRID CORE OPERATION DEPTH BYTES PLACES SECONDS TARGET\n");
		return 2;
	}
	spdk_nvme_trid_populate_transport(&at, SPDK_NVME_TRANSPORT_TCP);
	if (spdk_nvme_transport_id_parse(&at, words[1]) != 0) {
		return 2;
	}
	while (load.operation < OPERATIONS && strcmp(words[3], operation_names[load.operation]) != 0) {
		load.operation++;
	}
	load.bytes = (uint32_t)atoi(words[5]);
	load.places = strtoull(words[6], NULL, 10);
	bool is_known = clock_getcpuclockid(atoi(words[8]), &load.target) == 0;
	if (load.operation == OPERATIONS || load.places == 0 || atoi(words[4]) < 1 || !is_known) {
		return 2;
	}
	env.opts_size = sizeof(env);
	spdk_env_opts_init(&env);
	char mask[32];
	snprintf(mask, sizeof(mask), "0x%llx", 1ull << atoi(words[2]));
	env.name = "kvdrive_load";
	env.core_mask = mask;
	env.no_pci = true;
	env.no_huge = true;
	env.mem_size = 256;
	if (spdk_env_init(&env) != 0) {
		return 1;
	}
	struct spdk_nvme_ctrlr *controller = spdk_nvme_connect(&at, NULL, 0);
	load.ns = controller == NULL ? NULL : spdk_nvme_ctrlr_get_ns(controller, 1);
	load.queue = load.ns == NULL ? NULL : spdk_nvme_ctrlr_alloc_io_qpair(controller, NULL, 0);
	if (load.queue == NULL) {
		fprintf(stderr, "kvdrive_load: no connection, or no namespace 1\n");
		return 1;
	}
	load.blocks = load.operation < WRITE ? 0 : load.bytes / spdk_nvme_ns_get_sector_size(load.ns);
	int status = run(&load, (unsigned)atoi(words[4]), atof(words[7]));
	spdk_nvme_ctrlr_free_io_qpair(load.queue);
	spdk_nvme_detach(controller);
	spdk_env_fini();
	return status;
}
