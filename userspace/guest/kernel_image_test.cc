#include "userspace/guest/kernel_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lzma.h>
#include <zstd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/guest/cpio.h"

namespace stockade::guest {
namespace {

using absl::StatusCode;

std::string Packed(const std::string& bytes) {
    std::string out(ZSTD_compressBound(bytes.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1));
    return out;
}

void Set(std::string* at, size_t offset, uint32_t value, size_t count) {
    for (size_t i = 0; i < count; ++i) (*at)[offset + i] = static_cast<char>(value >> (8 * i));
}

// As a boot loader sees it: a header, two sectors of set-up, the payload somewhere behind.
std::string BzImage(const std::string& payload) {
    std::string image(3 * 512 + 64, '\0');
    Set(&image, 0x1f1, 2, 1);
    image.replace(0x202, 4, "HdrS");
    Set(&image, 0x206, 0x020f, 2);
    Set(&image, 0x248, 64, 4);
    Set(&image, 0x24c, static_cast<uint32_t>(payload.size()), 4);
    return image + payload + std::string(100, '\xff');
}

std::string Elf() {
    std::string elf(
        "\x7f"
        "ELF\x02",
        5);
    return elf + std::string(300000, 'k');
}

TEST(KernelImageTest, TheKernelComesOut) {
    // The kernel notes its unpacked size behind the frame.
    auto vmlinux = ExtractVmlinux(BzImage(Packed(Elf()) + std::string("\x01\x02\x03\x04", 4)));
    ASSERT_TRUE(vmlinux.ok()) << vmlinux.status();
    EXPECT_EQ(*vmlinux, Elf());
}

TEST(KernelImageTest, WhatIsNoKernelIsRefused) {
    const std::string good = BzImage(Packed(Elf()));
    EXPECT_EQ(ExtractVmlinux("").status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(ExtractVmlinux(std::string(10000, 'x')).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(ExtractVmlinux(good.substr(0, 3 * 512 + 80)).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(ExtractVmlinux(BzImage("\xfd"
                                     "7zXZ"))
                  .status()
                  .code(),
              StatusCode::kUnimplemented);
    EXPECT_EQ(ExtractVmlinux(BzImage(Packed("#!/bin/sh\n" + std::string(100, ' ')))).status().code(),
              StatusCode::kInvalidArgument);
    const std::string packed = Packed(Elf());
    EXPECT_EQ(ExtractVmlinux(BzImage(packed.substr(0, packed.size() - 10))).status().code(),
              StatusCode::kInvalidArgument);
    std::string far = good;
    Set(&far, 0x248, 0xfffffff0, 4);
    EXPECT_EQ(ExtractVmlinux(far).status().code(), StatusCode::kInvalidArgument);
}

class ModulesTest : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade-modules.XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        top_ = name;
        Write("modules.dep",
              "kernel/a/top-one.ko.xz: kernel/a/middle.ko kernel/a/base.ko\nkernel/a/middle.ko: "
              "kernel/a/base.ko\nkernel/a/base.ko:\n");
        Write("modules.builtin", "kernel/drivers/virtio/virtio_pci.ko\n");
        std::filesystem::create_directories(top_ + "/kernel/a");
        Write("kernel/a/base.ko", "base");
        Write("kernel/a/middle.ko", "middle");
        const std::string bytes(100000, 't');
        std::string packed(lzma_stream_buffer_bound(bytes.size()), '\0');
        size_t size = 0;
        ASSERT_EQ(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, nullptr,
                                          reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
                                          reinterpret_cast<uint8_t*>(packed.data()), &size, packed.size()),
                  LZMA_OK);
        packed.resize(size);
        Write("kernel/a/top-one.ko.xz", packed);
    }
    void TearDown() override { std::filesystem::remove_all(top_); }
    void Write(const std::string& name, const std::string& bytes) {
        ASSERT_TRUE(ReplaceFile(top_ + "/" + name, bytes, 0644).ok());
    }
    std::string top_;
};

TEST_F(ModulesTest, EachAfterWhatItNeedsAndOnce) {
    auto modules = CollectModules(top_, {"middle", "top_one", "virtio_pci"});
    ASSERT_TRUE(modules.ok()) << modules.status();
    std::string names;
    for (const auto& [name, bytes] : *modules) absl::StrAppend(&names, name, " ");
    EXPECT_EQ(names, "base.ko middle.ko top_one.ko ");
    EXPECT_EQ((*modules)[2].second, std::string(100000, 't'));
}

TEST_F(ModulesTest, AModuleThatIsNotThere) {
    EXPECT_EQ(CollectModules(top_, {"9p"}).status().code(), StatusCode::kNotFound);
    Write("kernel/a/top-one.ko.xz", "garbage");
    EXPECT_FALSE(CollectModules(top_, {"top_one"}).ok());
}

TEST(CpioTest, IsTheKernelsForm) {
    CpioWriter cpio;
    cpio.AddDirectory("d", 0755);
    cpio.AddFile("d/f", 0644, "hello");
    const std::string out = cpio.Finish();
    EXPECT_EQ(out.size() % 4, 0u);
    EXPECT_EQ(out.substr(0, 22), "07070100000001000041ed");
    EXPECT_THAT(out, testing::HasSubstr(std::string("d/f\0\0\0hello", 11)));
    EXPECT_THAT(out, testing::HasSubstr("TRAILER!!!"));
}

}  // namespace
}  // namespace stockade::guest
