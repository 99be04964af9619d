/* A program that passes commands through a Linux device node, and does not know what answers them. It prints a line for
 * each check: "ok NAME", or "WRONG NAME: ..." and then exits with 1.
 *
 *   program NODE CONTROLLER       everything that a kernel would answer on a fresh namespace of pairs
 *   program unprivileged NODE CONTROLLER      the commands that Linux allows to users other than root
 *   program child NODE            a child uses a descriptor that its parent has used
 *   program threads NODE N        N threads store and read back pairs of their own at once
 *   program inherited FD          uses a descriptor that another process opened
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STORE = 0x01, RETRIEVE = 0x02, LIST = 0x06, DELETE = 0x10, EXIST = 0x14, IDENTIFY = 0x06, GET_LOG = 0x02 };
static const long BAD = 1 << 16; /* errno values are told from statuses by it */
static int wrong;

static void check(const char *name, long is, long should) {
    if (is == should) {
        printf("ok %s\n", name);
    } else {
        printf("WRONG %s: %lXh, not %lXh\n", name, is, should);
        wrong = 1;
    }
}

/* The result of an ioctl: its return value, or BAD with errno. */
static long said(long returned) { return returned < 0 ? BAD | errno : returned; }

static struct nvme_passthru_cmd kv(int opcode, const char *key, void *data, unsigned length) {
    struct nvme_passthru_cmd command = {.opcode = opcode, .nsid = 1};
    char bytes[16] = {0};
    size_t keys = strlen(key);
    memcpy(bytes, key, keys);
    memcpy(&command.cdw2, bytes, 8);
    memcpy(&command.cdw14, bytes + 8, 8);
    command.cdw11 = keys;
    command.cdw10 = length;
    command.addr = (uintptr_t)data;
    command.data_len = length;
    return command;
}

static long io(int fd, int opcode, const char *key, void *data, unsigned length) {
    struct nvme_passthru_cmd command = kv(opcode, key, data, length);
    return said(ioctl(fd, NVME_IOCTL_IO_CMD, &command));
}

static void stats(const char *path, int fd, const char *controller) {
    struct stat it;
    check("stat", stat(path, &it), 0);
    check("a character device", S_ISCHR(it.st_mode), 1);
    check("lstat", lstat(path, &it) | !S_ISCHR(it.st_mode), 0);
    check("fstatat", fstatat(AT_FDCWD, path, &it, 0) | !S_ISCHR(it.st_mode), 0);
    memset(&it, 0, sizeof it);
    check("fstat", fstat(fd, &it) | !S_ISCHR(it.st_mode), 0);
    struct statx extended;
    check("statx", statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended) | !S_ISCHR(extended.stx_mode), 0);
    check("statx of a path", statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended) | !S_ISCHR(extended.stx_mode), 0);
    check("access", access(path, R_OK | W_OK), 0);
    check("the controller's node", stat(controller, &it) | !S_ISCHR(it.st_mode), 0);
    check("open as a folder", said(open(path, O_RDONLY | O_DIRECTORY)), BAD | ENOTDIR);
    check("create anew", said(open(path, O_RDWR | O_CREAT | O_EXCL, 0600)), BAD | EEXIST);
    check("a path beside it", said(open("/dev/ng0n1nothing", O_RDWR)), BAD | ENOENT);
}

static void pairs(int fd) {
    static char value[300000], back[300000];
    for (size_t i = 0; i < sizeof value; i++) value[i] = i * 2654435761u >> 13;
    check("store", io(fd, STORE, "key", value, 5000), 0);
    struct nvme_passthru_cmd command = kv(RETRIEVE, "key", back, 8192);
    memset(back, 0x55, sizeof back);
    check("retrieve", said(ioctl(fd, NVME_IOCTL_IO_CMD, &command)), 0);
    check("size of the value", command.result, 5000);
    check("the value", memcmp(value, back, 5000), 0);
    check("memory behind it is as it was", back[5000], 0x55);
    memset(back, 0x55, sizeof back);
    check("retrieve to an odd address", io(fd, RETRIEVE, "key", back + 1, 6001), 0);
    check("the value there", memcmp(value, back + 1, 5000), 0);
    check("zeros behind it", back[5001] | back[6001], 0);
    check("and no more", back[6002], 0x55);
    check("a short buffer", io(fd, RETRIEVE, "key", back, 100), 0);
    check("store of a large value", io(fd, STORE, "0123456789abcdef", value, 270336), 0);
    memset(back, 0, sizeof back);
    check("retrieve of a large value", io(fd, RETRIEVE, "0123456789abcdef", back, 270336), 0);
    check("the large value", memcmp(value, back, 270336), 0);
    check("exist", io(fd, EXIST, "key", 0, 0), 0);
    check("exist of a missing key", io(fd, EXIST, "nothing", 0, 0), 0x4087);
    check("retrieve of a missing key", io(fd, RETRIEVE, "nothing", back, 4096), 0x4087);
    check("list", io(fd, LIST, "", back, 4096), 0);
    check("keys of the list", back[0], 2);
    check("delete", io(fd, DELETE, "key", 0, 0), 0);
    check("exist of a deleted key", io(fd, EXIST, "key", 0, 0), 0x4087);
    command = kv(STORE, "0123456789abcdef", value, 512);
    command.cdw11 |= 2 << 8;
    check("store if it is not there", said(ioctl(fd, NVME_IOCTL_IO_CMD, &command)), 0x4089);
    check("an opcode that is none", io(fd, 0x7C, "key", 0, 0), 0x4001);
}

static void long_forms(int fd) {
    char one[1000], two[3096], back[4096];
    memset(one, 1, sizeof one);
    memset(two, 2, sizeof two);
    struct iovec parts[] = {{one, sizeof one}, {two, sizeof two}};
    struct nvme_passthru_cmd short_form = kv(STORE, "vectors", parts, 4096);
    struct nvme_passthru_cmd64 command = {.opcode = STORE, .nsid = 1, .cdw2 = short_form.cdw2, .cdw3 = short_form.cdw3};
    command.cdw10 = 4096;
    command.cdw11 = 7;
    command.addr = (uintptr_t)parts;
    command.vec_cnt = 2;
    check("store of vectors", said(ioctl(fd, NVME_IOCTL_IO64_CMD_VEC, &command)), 0);
    command.opcode = RETRIEVE;
    command.addr = (uintptr_t)back;
    command.data_len = sizeof back;
    check("retrieve in the long form", said(ioctl(fd, NVME_IOCTL_IO64_CMD, &command)), 0);
    check("its long result", command.result, 4096);
    check("both vectors", back[999] == 1 && back[1000] == 2 && back[4095] == 2, 1);
    command.addr = (uintptr_t)parts;
    command.vec_cnt = 1025;
    check("more vectors than Linux takes", said(ioctl(fd, NVME_IOCTL_IO64_CMD_VEC, &command)), BAD | EINVAL);
    struct nvme_passthru_cmd64 property = {.opcode = 0x7F, .nsid = 4, .cdw10 = 1};
    check("a property", said(ioctl(fd, NVME_IOCTL_ADMIN64_CMD, &property)), 0);
    check("which is CAP", property.result >> 43 & 1, 1);
}

static void admin(int fd) {
    static unsigned char page[4096];
    struct nvme_passthru_cmd command = {.opcode = IDENTIFY, .addr = (uintptr_t)page, .data_len = 4096, .cdw10 = 1};
    check("identify", said(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command)), 0);
    check("a model", memcmp(page + 24, "kvdrive", 7), 0);
    command.cdw10 = 0x77;
    check("a structure that is none", said(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command)), 0x4002);
    struct nvme_passthru_cmd log = {.opcode = GET_LOG, .nsid = ~0u, .addr = (uintptr_t)page, .data_len = 512};
    log.cdw10 = 127 << 16 | 2;
    check("health", said(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &log)), 0);
    struct nvme_passthru_cmd event = {.opcode = 0x0C, .timeout_ms = 50};
    check("a command that takes too long", said(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &event)), BAD | EINTR);
    command.cdw10 = 1;
    check("and the next one", said(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command)), 0);
    command.addr = 0;
    check("identify without memory", said(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command)), 0x400F);
}

static void refusals(const char *path, int fd) {
    static char buffer[8192];
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page + 4096, 4096, PROT_NONE);
    char *fixed = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("identifier", said(ioctl(fd, NVME_IOCTL_ID)), 1);
    check("no structure", said(ioctl(fd, NVME_IOCTL_IO_CMD, 0)), BAD | EFAULT);
    check("a wild structure", said(ioctl(fd, NVME_IOCTL_IO_CMD, (void *)0xDEADBEEF0000)), BAD | EFAULT);
    check("half a structure", said(ioctl(fd, NVME_IOCTL_IO_CMD, page + 4096 - 71)), BAD | EFAULT);
    struct nvme_passthru_cmd command = kv(STORE, "key", buffer, 100);
    command.flags = 1;
    check("flags", said(ioctl(fd, NVME_IOCTL_IO_CMD, &command)), BAD | EINVAL);
    command = kv(STORE, "key", buffer, 100);
    command.nsid = 2;
    check("another namespace", said(ioctl(fd, NVME_IOCTL_IO_CMD, &command)), BAD | EINVAL);
    command.nsid = ~0u;
    check("all namespaces", said(ioctl(fd, NVME_IOCTL_IO_CMD, &command)), BAD | EINVAL);
    check("store of wild memory", io(fd, STORE, "key", (void *)0xDEADBEEF0000, 100), BAD | EFAULT);
    check("store over an end", io(fd, STORE, "key", page + 4000, 100), BAD | EFAULT);
    check("nothing was stored", io(fd, EXIST, "key", 0, 0), 0x4087);
    check("retrieve over an end", io(fd, RETRIEVE, "vectors", page + 4000, 4096), BAD | EFAULT);
    check("retrieve to memory that is fixed", io(fd, RETRIEVE, "vectors", fixed, 4096), BAD | EFAULT);
    check("retrieve without memory", io(fd, RETRIEVE, "vectors", 0, 4096), 0x400F);
    command = kv(STORE, "lies", buffer, 100);
    command.cdw10 = 101;
    check("store of more than its data", said(ioctl(fd, NVME_IOCTL_IO_CMD, &command)), 0x400F);
    command.cdw10 = ~0u;
    check("store of far more than its data", said(ioctl(fd, NVME_IOCTL_IO_CMD, &command)), 0x4085);
    check("a length that lies stores nothing", io(fd, EXIST, "lies", 0, 0), 0x4087);
    memset(buffer, 0x55, sizeof buffer);
    command = kv(RETRIEVE, "vectors", buffer, 100);
    command.cdw10 = 4096;
    check("retrieve of more than its data", said(ioctl(fd, NVME_IOCTL_IO_CMD, &command)), 0x400F);
    check("a length that lies writes nothing", buffer[0] == 0x55 && buffer[100] == 0x55, 1);
    command = kv(STORE, "key", buffer, 100);
    command.metadata = (uintptr_t)buffer;
    command.metadata_len = 8;
    check("metadata", said(ioctl(fd, NVME_IOCTL_IO_CMD, &command)), BAD | EINVAL);
    check("longer than a transfer", io(fd, STORE, "key", buffer, 0xFFFFFFFFu), BAD | EINVAL);
    check("blocks", said(ioctl(fd, NVME_IOCTL_SUBMIT_IO, buffer)), BAD | EINVAL);
    check("reset of a namespace", said(ioctl(fd, NVME_IOCTL_RESET)), BAD | ENOTTY);
    check("an ioctl of terminals", said(ioctl(fd, 0x5401, buffer)), BAD | ENOTTY);
    check("an ioctl that is none", said(ioctl(fd, 0x4E7F)), BAD | ENOTTY);
    check("a system without rings", said(syscall(425, 8, buffer)), BAD | ENOSYS);
    errno = 77;
    ioctl(fd, NVME_IOCTL_ID);
    check("errno is as it was", errno, 77);
    (void)path;
}

static void controller_node(const char *path) {
    int fd = open(path, O_RDWR);
    check("open the controller", fd >= 0, 1);
    check("it has no identifier", said(ioctl(fd, NVME_IOCTL_ID)), BAD | ENOTTY);
    check("its one namespace", io(fd, EXIST, "vectors", 0, 0), 0);
    struct nvme_passthru_cmd64 command = {.opcode = EXIST, .nsid = 1};
    check("not in the long form", said(ioctl(fd, NVME_IOCTL_IO64_CMD, &command)), BAD | ENOTTY);
    check("rescan", said(ioctl(fd, NVME_IOCTL_RESCAN)), 0);
    check("reset", said(ioctl(fd, NVME_IOCTL_RESET)), 0);
    check("and what was stored is there", io(fd, EXIST, "vectors", 0, 0), 0);
    close(fd);
}

static void descriptors(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    int copies[] = {dup(fd), dup2(fd, 77), dup3(fd, 78, O_CLOEXEC), fcntl(fd, F_DUPFD_CLOEXEC, 3)};
    close(fd);
    check("a closed descriptor", said(ioctl(fd, NVME_IOCTL_ID)), BAD | EBADF);
    for (int i = 0; i < 4; i++) {
        check("a copy of a descriptor", said(ioctl(copies[i], NVME_IOCTL_ID)), 1);
        close(copies[i]);
    }
    int other = open("/dev/null", O_RDWR);
    check("another device", said(ioctl(other, NVME_IOCTL_ID)), BAD | ENOTTY);
    check("no descriptor", said(ioctl(-1, NVME_IOCTL_ID)), BAD | EBADF);
    close(other);
    chdir("/dev");
    fd = openat(AT_FDCWD, strrchr(path, '/') + 1, O_RDONLY);
    check("a path from here", said(ioctl(fd, NVME_IOCTL_ID)), 1);
    close(fd);
}

static void unprivileged(const char *path, const char *controller) {
    static unsigned char page[4096];
    int fd = open(path, O_RDWR), reader = open(path, O_RDONLY), other = open(controller, O_RDWR);
    check("store", io(fd, STORE, "key", page, 100), 0);
    check("store, open for reading", io(reader, STORE, "key", page, 100), BAD | EACCES);
    check("retrieve, open for reading", io(reader, RETRIEVE, "key", page, 4096), 0);
    check("exist, open for reading", io(reader, EXIST, "key", 0, 0), 0);
    check("delete, open for reading", io(reader, DELETE, "key", 0, 0), BAD | EACCES);
    check("an opcode that is none", io(fd, 0x7C, "key", 0, 0), BAD | EACCES);
    check("an opcode of a vendor", io(fd, 0xA2, "key", page, 4096), BAD | EACCES);
    struct nvme_passthru_cmd command = {.opcode = IDENTIFY, .addr = (uintptr_t)page, .data_len = 4096, .cdw10 = 1};
    check("identify", said(ioctl(reader, NVME_IOCTL_ADMIN_CMD, &command)), 0);
    command.cdw10 = 2;
    check("identify, the list of namespaces", said(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command)), BAD | EACCES);
    struct nvme_passthru_cmd log = {.opcode = GET_LOG, .nsid = ~0u, .addr = (uintptr_t)page, .data_len = 512};
    log.cdw10 = 127 << 16 | 2;
    check("health", said(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &log)), BAD | EACCES);
    check("reset", said(ioctl(other, NVME_IOCTL_RESET)), BAD | EACCES);
    command.nsid = 2;
    command.opcode = STORE;
    check("another namespace comes before rights", said(ioctl(reader, NVME_IOCTL_IO_CMD, &command)), BAD | EINVAL);
}

struct worker {
    int fd, number;
    long failures;
};

static void *work(void *argument) {
    struct worker *worker = argument;
    for (int i = 0; i < 40; i++) {
        char key[17], value[4096], back[4096];
        snprintf(key, sizeof key, "t%d-%d", worker->number, i);
        memset(value, worker->number * 40 + i, sizeof value);
        worker->failures += io(worker->fd, STORE, key, value, sizeof value) != 0;
        worker->failures += io(worker->fd, RETRIEVE, key, back, sizeof back) != 0;
        worker->failures += memcmp(value, back, sizeof value) != 0;
    }
    return 0;
}

static void threads(const char *path, int count) {
    int fd = open(path, O_RDWR);
    pthread_t ids[count];
    struct worker workers[count];
    long failures = 0;
    for (int i = 0; i < count; i++) {
        workers[i] = (struct worker){fd, i, 0};
        pthread_create(&ids[i], 0, work, &workers[i]);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(ids[i], 0);
        failures += workers[i].failures;
    }
    check("every thread read what it stored", failures, 0);
}

static void child(const char *path) {
    int fd = open(path, O_RDWR);
    check("the parent", said(ioctl(fd, NVME_IOCTL_ID)), 1);
    fflush(stdout);
    pid_t id = fork();
    if (id == 0) {
        check("the child", said(ioctl(fd, NVME_IOCTL_ID)), 1);
        check("a command of the child", io(fd, EXIST, "nothing", 0, 0), 0x4087);
        exit(wrong);
    }
    int status;
    waitpid(id, &status, 0);
    check("the child's end", status, 0);
    check("the parent goes on", io(fd, EXIST, "nothing", 0, 0), 0x4087);
}

int main(int count, char **arguments) {
    if (count == 3 && !strcmp(arguments[1], "child")) {
        child(arguments[2]);
    } else if (count == 4 && !strcmp(arguments[1], "unprivileged")) {
        unprivileged(arguments[2], arguments[3]);
    } else if (count == 4 && !strcmp(arguments[1], "threads")) {
        threads(arguments[2], atoi(arguments[3]));
    } else if (count == 3 && !strcmp(arguments[1], "inherited")) {
        check("a descriptor of somebody else", said(ioctl(atoi(arguments[2]), NVME_IOCTL_ID)), 1);
    } else if (count == 3) {
        int fd = open(arguments[1], O_RDWR);
        check("open", fd >= 0, 1);
        stats(arguments[1], fd, arguments[2]);
        admin(fd);
        pairs(fd);
        long_forms(fd);
        refusals(arguments[1], fd);
        controller_node(arguments[2]);
        descriptors(arguments[1]);
    } else {
        return 2;
    }
    return wrong;
}
