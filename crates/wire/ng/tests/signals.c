/* A program whose ioctls are interrupted by signals that it handles. It prints one line of counts.
 *
 *   signals NODE ROUNDS restart        handlers with SA_RESTART
 *   signals NODE ROUNDS interrupt      without: a call may return EINTR, and every other one is then made again
 *
 * lost: an acknowledged store was not there, or an older one was there instead.
 * afterwards: a buffer changed after the call that it was given to had returned.
 * twice: a store of a new key found its key there, so the command had been carried out before.
 * ran: a store that returned EINTR, and was not made again, was there nevertheless.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { STORE = 0x01, RETRIEVE = 0x02, BYTES = 16384, NEW_ONLY = 2 << 8 };
static pthread_t main_thread;
static volatile int is_done;
static volatile sig_atomic_t signals;
static int fd, interrupted, lost, afterwards, twice, ran, failed;

static void handler(int number) {
    (void)number;
    signals++;
}

static void *interrupt(void *nothing) {
    unsigned seed = 1;
    while (!is_done) {
        usleep(20 + rand_r(&seed) % 200);
        pthread_kill(main_thread, SIGUSR1);
    }
    return nothing;
}

/* One command; 1: it returned EINTR. */
static int once(int opcode, unsigned options, const char *key, void *data, int *status) {
    struct nvme_passthru_cmd command = {.opcode = opcode, .nsid = 1};
    char bytes[16] = {0};
    memcpy(bytes, key, strlen(key));
    memcpy(&command.cdw2, bytes, 8);
    memcpy(&command.cdw14, bytes + 8, 8);
    command.cdw10 = command.data_len = BYTES;
    command.cdw11 = strlen(key) | options;
    command.addr = (uintptr_t)data;
    *status = ioctl(fd, NVME_IOCTL_IO_CMD, &command);
    if (*status < 0 && errno == EINTR) {
        interrupted++;
        return 1;
    }
    if (*status < 0) fprintf(stderr, "errno %d\n", errno);
    failed += *status < 0;
    return 0;
}

static int until_done(int opcode, unsigned options, const char *key, void *data) {
    int status;
    while (once(opcode, options, key, data, &status)) {
    }
    return status;
}

static void fill(uint64_t *words, uint64_t value) {
    for (int i = 0; i < BYTES / 8; i++) words[i] = value;
}

/* The value of the key, or -1 if it is mixed; the buffer is then filled and watched. */
static uint64_t value_now(void) {
    static uint64_t back[BYTES / 8];
    int status = until_done(RETRIEVE, 0, "key", back);
    uint64_t value = back[0];
    for (int i = 0; i < BYTES / 8; i++) value = back[i] == value ? value : ~0ull;
    fill(back, 0x5A5A);
    for (volatile int spin = 0; spin < 20000; spin++) {
    }
    for (int i = 0; i < BYTES / 8; i++) {
        if (back[i] != 0x5A5A) {
            afterwards++;
            break;
        }
    }
    failed += status != 0;
    return value;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    fd = open(arguments[1], O_RDWR);
    if (fd < 0) return 3;
    int rounds = atoi(arguments[2]), status;
    struct sigaction action = {.sa_handler = handler};
    action.sa_flags = strcmp(arguments[3], "restart") ? 0 : SA_RESTART;
    sigaction(SIGUSR1, &action, 0);
    static uint64_t value[BYTES / 8];
    fill(value, 1);
    if (until_done(STORE, 0, "key", value)) return 4;
    uint64_t last = 1;
    main_thread = pthread_self();
    pthread_t other;
    pthread_create(&other, 0, interrupt, 0);
    for (uint64_t i = 2; i < 2 + (uint64_t)rounds; i++) {
        /* A store that is not made again may be there or not, but not after a later one. */
        fill(value, i << 32);
        int is_open = 0;
        if (once(STORE, 0, "key", value, &status)) {
            if (i % 2) {
                status = until_done(STORE, 0, "key", value);
                last = i << 32;
            } else {
                is_open = 1;
            }
        } else {
            last = i << 32;
        }
        if (!is_open) failed += status != 0;
        /* The buffer is the program's again. */
        fill(value, 0xBAD);
        uint64_t now = value_now();
        if (is_open && now == i << 32) {
            ran++;
            last = now;
        }
        lost += now != last;
        fill(value, i << 32 | 1);
        failed += until_done(STORE, 0, "key", value) != 0;
        last = i << 32 | 1;
        lost += value_now() != last;
        char key[17];
        snprintf(key, sizeof key, "new%d", (int)i);
        status = until_done(STORE, NEW_ONLY, key, value);
        twice += status == 0x4089;
        failed += status != 0 && status != 0x4089;
    }
    is_done = 1;
    pthread_join(other, 0);
    printf("%d rounds, %d signals, %d interrupted, %d ran, %d lost, %d afterwards, %d twice, %d failed\n", rounds,
           (int)signals, interrupted, ran, lost, afterwards, twice, failed);
    return lost || afterwards || failed;
}
