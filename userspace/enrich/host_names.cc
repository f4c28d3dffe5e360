#include "userspace/enrich/host_names.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace stockade::enrich {

void HostNames::Clear(Book* book) {
    size_ -= book->size();
    book->clear();
}

void HostNames::Learn(const std::string& sandbox, const std::string& address, const std::string& name,
                      uint64_t boot_ns) {
    Book& book = books_[sandbox];
    if (const auto known = book.find(address); known != book.end()) {
        std::vector<Led>& names = known->second;
        if (names.back().name == name) return;
        if (names.size() >= options_.max_names) names.erase(names.begin());
        names.push_back({boot_ns, name});
        return;
    }
    if (book.size() >= options_.max_addresses || size_ >= options_.max_all) {
        counters_.forgotten += book.size();
        Clear(&book);
    }
    if (size_ >= options_.max_all) {
        ++counters_.refused;
        books_.erase(sandbox);  // it is empty
        return;
    }
    book[address].push_back({boot_ns, name});
    ++size_;
}

bool HostNames::Enrich(v1::Event* event, v1::Event* original) const {
    if (!event->has_net() || event->net().address().empty()) return false;
    const auto book = books_.find(event->sandbox().id());
    if (book == books_.end()) return false;
    const auto names = book->second.find(event->net().address());
    if (names == book->second.end()) return false;
    const auto led = std::find_if(names->second.rbegin(), names->second.rend(),
                                  [&](const Led& each) { return each.boot_ns <= event->boot_ns(); });
    if (led == names->second.rend()) return false;
    for (v1::Event* to : {event, original}) {
        if (to == nullptr) continue;
        to->mutable_net()->set_host_name(led->name);
        if (absl::StrContains(led->name, '\\')) to->mutable_net()->set_escaped(true);
    }
    return true;
}

void HostNames::Forget(const std::string& sandbox) {
    const auto book = books_.find(sandbox);
    if (book == books_.end()) return;
    Clear(&book->second);
    books_.erase(book);
}

}  // namespace stockade::enrich
