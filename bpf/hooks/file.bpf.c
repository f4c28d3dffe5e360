/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What may be read and written, by the path that the kernel resolved. Each hook: ON_ERROR deny.
 * COVERAGE of the set: utimes and extended attributes have no hook that tells the mount, and are
 * not judged. Directory hooks need CONFIG_SECURITY_PATH. */
#include "bpf/lib/file.h"

__noinline int file_report(struct sk_path_case *c, __u32 open_flags, __s32 error) {
    if (!c) return 0;
    RECORD_BEGIN(file, FILE, &c->base);
    path_fill(&record->path, c);
    record->op = c->base.op;
    record->open_flags = open_flags;
    record->error = error;
    RECORD_END();
    return 0;
}

/* FIRES once for each open, open_by_handle_at and io_uring's included, after look-up and mode
 * bits; twice on overlayfs. SOURCE do_dentry_open. COVERAGE not O_PATH, which gives no access. */
SEC("lsm/file_open")
int BPF_PROG(file_open_chk, struct file *file, int ret) {
    struct sk_path_case *c = ret ? NULL : case_open(SK_SECTION_FILES, SK_POWER_REFUSE);
    if (!c) return ret;
    struct sk_file_view view = {
        .mnt = (__u64)file->f_path.mnt,
        .dentry = (__u64)file->f_path.dentry,
        .mode = file->f_mode,
        .flags = file->f_flags,
        .kind = file->f_inode->i_mode & S_IFMT,
    };
    /* Here f_flags still have it; since 6.2 no hook on a path sees what follows. */
    if ((view.flags & O_TRUNC) && view.kind == S_IFREG) view.mode |= FMODE_WRITE;
    return lsm_result(file_opened(c, &view));
}

/* FIRES before unlink. SOURCE do_unlinkat. */
SEC("lsm/path_unlink")
int BPF_PROG(file_unlink, const struct path *dir, struct dentry *dentry, int ret) {
    return ret ? ret : file_change(dir->mnt, dentry, SK_FILE_UNLINK, 0);
}

/* FIRES before mkdir. SOURCE do_mkdirat. */
SEC("lsm/path_mkdir")
int BPF_PROG(file_mkdir, const struct path *dir, struct dentry *dentry, unsigned short mode, int ret) {
    return ret ? ret : file_change(dir->mnt, dentry, SK_FILE_MKDIR, mode);
}

/* FIRES before rmdir. SOURCE do_rmdir. */
SEC("lsm/path_rmdir")
int BPF_PROG(file_rmdir, const struct path *dir, struct dentry *dentry, int ret) {
    return ret ? ret : file_change(dir->mnt, dentry, SK_FILE_RMDIR, 0);
}

/* FIRES before mknod, bind of a unix socket, and open with O_CREAT of what is not there.
 * SOURCE do_mknodat, may_o_create, unix_bind_bsd. */
SEC("lsm/path_mknod")
int BPF_PROG(file_mknod, const struct path *dir, struct dentry *dentry, unsigned short mode, unsigned int dev,
             int ret) {
    unsigned short kind = mode & S_IFMT;
    __u32 op = kind == S_IFREG || !kind ? SK_FILE_CREATE : SK_FILE_MKNOD;
    return ret ? ret : file_change(dir->mnt, dentry, op, mode);
}

/* FIRES before symlink; the target string means nothing until somebody follows it.
 * SOURCE do_symlinkat. */
SEC("lsm/path_symlink")
int BPF_PROG(file_symlink, const struct path *dir, struct dentry *dentry, const char *old_name, int ret) {
    return ret ? ret : file_change(dir->mnt, dentry, SK_FILE_SYMLINK, 0);
}

/* FIRES before link and linkat, O_TMPFILE's included. SOURCE do_linkat. */
SEC("lsm/path_link")
int BPF_PROG(file_link, struct dentry *old_dentry, const struct path *new_dir, struct dentry *new_dentry,
             int ret) {
    if (ret) return ret;
    ret = file_link_source(new_dir->mnt, old_dentry);
    return ret ? ret : file_change(new_dir->mnt, new_dentry, SK_FILE_LINK, 0);
}

/* FIRES before rename; for RENAME_EXCHANGE twice, with the sides changed. SOURCE do_renameat2. */
SEC("lsm/path_rename")
int BPF_PROG(file_rename, const struct path *old_dir, struct dentry *old_dentry, const struct path *new_dir,
             struct dentry *new_dentry, unsigned int flags, int ret) {
    if (ret) return ret;
    ret = file_move(old_dir->mnt, old_dentry);
    return ret ? ret : file_move(new_dir->mnt, new_dentry);
}

/* FIRES before chmod and fchmod. SOURCE chmod_common. */
SEC("lsm/path_chmod")
int BPF_PROG(file_chmod, const struct path *path, unsigned short mode, int ret) {
    return ret ? ret : file_change(path->mnt, path->dentry, SK_FILE_CHMOD, mode & 07777);
}

/* FIRES before chown, lchown and fchown. SOURCE chown_common. */
SEC("lsm/path_chown")
int BPF_PROG(file_chown, const struct path *path, __u64 uid, __u64 gid, int ret) {
    return ret ? ret : file_change(path->mnt, path->dentry, SK_FILE_CHOWN, 0);
}

/* FIRES before truncate by path; open with O_TRUNC is an open for writing. SOURCE do_truncate. */
SEC("lsm/path_truncate")
int BPF_PROG(file_truncate, const struct path *path, int ret) {
    return ret ? ret : file_change(path->mnt, path->dentry, SK_FILE_TRUNCATE, 0);
}
