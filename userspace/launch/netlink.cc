#include "userspace/launch/netlink.h"

#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"

namespace stockade::launch {
namespace {

// One request, built in place. All of ours are below 400 bytes.
class Request {
  public:
    Request(uint16_t type, uint16_t flags) {
        nlmsghdr* header = Header();
        header->nlmsg_len = NLMSG_LENGTH(0);
        header->nlmsg_type = type;
        header->nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    }
    template <typename T>
    void Append(const T& value) {
        Raw(&value, sizeof(value));
    }
    void Attribute(uint16_t type, const void* data, size_t size) {
        rtattr attr{static_cast<unsigned short>(RTA_LENGTH(size)), type};
        Raw(&attr, sizeof(attr));
        Raw(data, size);
    }
    void Attribute(uint16_t type, const std::string& text) { Attribute(type, text.c_str(), text.size() + 1); }
    void Attribute(uint16_t type, uint32_t value) { Attribute(type, &value, sizeof(value)); }
    size_t Open(uint16_t type) {
        size_t at = Header()->nlmsg_len;
        Attribute(type, nullptr, 0);
        return at;
    }
    void Close(size_t at) {
        reinterpret_cast<rtattr*>(buffer_ + at)->rta_len =
            static_cast<unsigned short>(Header()->nlmsg_len - at);
    }
    const void* data() const { return buffer_; }
    size_t size() { return Header()->nlmsg_len; }

  private:
    nlmsghdr* Header() { return reinterpret_cast<nlmsghdr*>(buffer_); }
    void Raw(const void* data, size_t size) {
        size_t at = Header()->nlmsg_len;
        if (size != 0) memcpy(buffer_ + at, data, size);
        Header()->nlmsg_len = static_cast<uint32_t>(at + NLMSG_ALIGN(size));
    }
    alignas(nlmsghdr) char buffer_[1024] = {};
};

StatusOr<int> LinkIndex(const std::string& link) {
    unsigned index = if_nametoindex(link.c_str());
    if (index == 0) return ErrnoStatus(errno, absl::StrCat("link ", link));
    return static_cast<int>(index);
}

}  // namespace

StatusOr<Netlink> Netlink::Create() {
    Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!fd.ok()) return ErrnoStatus(errno, "rtnetlink socket");
    return Netlink(std::move(fd));
}

Status Netlink::Transact(const void* message, size_t size, const std::string& tried) {
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    if (sendto(fd_.get(), message, size, 0, reinterpret_cast<sockaddr*>(&kernel), sizeof(kernel)) < 0) {
        return ErrnoStatus(errno, tried);
    }
    alignas(nlmsghdr) char reply[4096];
    ssize_t n = recv(fd_.get(), reply, sizeof(reply), 0);
    if (n < 0) return ErrnoStatus(errno, tried);
    const auto* header = reinterpret_cast<const nlmsghdr*>(reply);
    if (!NLMSG_OK(header, static_cast<size_t>(n)) || header->nlmsg_type != NLMSG_ERROR) {
        return absl::InternalError(absl::StrCat(tried, ": no acknowledgement"));
    }
    return NegErrnoStatus(static_cast<const nlmsgerr*>(NLMSG_DATA(header))->error, tried);
}

Status Netlink::AddVeth(const std::string& name, const std::string& peer, int peer_ns_fd) {
    Request request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    request.Append(ifinfomsg{});
    request.Attribute(IFLA_IFNAME, name);
    size_t info = request.Open(IFLA_LINKINFO);
    request.Attribute(IFLA_INFO_KIND, std::string("veth"));
    size_t data = request.Open(IFLA_INFO_DATA);
    size_t other = request.Open(VETH_INFO_PEER);
    request.Append(ifinfomsg{});
    request.Attribute(IFLA_IFNAME, peer);
    request.Attribute(IFLA_NET_NS_FD, static_cast<uint32_t>(peer_ns_fd));
    request.Close(other);
    request.Close(data);
    request.Close(info);
    return Transact(request.data(), request.size(), absl::StrCat("make veth ", peer));
}

Status Netlink::LinkUp(const std::string& link) { return SetUp(link, true); }

Status Netlink::LinkDown(const std::string& link) { return SetUp(link, false); }

Status Netlink::SetUp(const std::string& link, bool up) {
    SK_ASSIGN_OR_RETURN(int index, LinkIndex(link));
    Request request(RTM_NEWLINK, 0);
    ifinfomsg message{};
    message.ifi_index = index;
    message.ifi_flags = up ? IFF_UP : 0;
    message.ifi_change = IFF_UP;
    request.Append(message);
    return Transact(request.data(), request.size(), absl::StrCat(up ? "bring up " : "take down ", link));
}

Status Netlink::AddAddress(const std::string& link, uint32_t address, uint8_t prefix_bits) {
    SK_ASSIGN_OR_RETURN(int index, LinkIndex(link));
    Request request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE);
    ifaddrmsg message{};
    message.ifa_family = AF_INET;
    message.ifa_prefixlen = prefix_bits;
    message.ifa_index = static_cast<unsigned>(index);
    request.Append(message);
    request.Attribute(IFA_LOCAL, address);
    request.Attribute(IFA_ADDRESS, address);
    SK_RETURN_IF_ERROR(Transact(request.data(), request.size(), absl::StrCat("address of ", link)));
    return LinkUp(link);
}

Status Netlink::AddDefaultRoute(uint32_t gateway) {
    Request request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
    rtmsg message{};
    message.rtm_family = AF_INET;
    message.rtm_table = RT_TABLE_MAIN;
    message.rtm_protocol = RTPROT_BOOT;
    message.rtm_scope = RT_SCOPE_UNIVERSE;
    message.rtm_type = RTN_UNICAST;
    request.Append(message);
    request.Attribute(RTA_GATEWAY, gateway);
    return Transact(request.data(), request.size(), "default route");
}

Status Netlink::DeleteLink(const std::string& link) {
    unsigned index = if_nametoindex(link.c_str());
    if (index == 0) return absl::OkStatus();
    Request request(RTM_DELLINK, 0);
    ifinfomsg message{};
    message.ifi_index = static_cast<int>(index);
    request.Append(message);
    Status status = Transact(request.data(), request.size(), absl::StrCat("remove ", link));
    // Gone with the sandbox's namespace in the meantime.
    return if_nametoindex(link.c_str()) == 0 ? absl::OkStatus() : status;
}

}  // namespace stockade::launch
