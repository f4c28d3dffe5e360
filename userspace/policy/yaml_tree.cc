#include "userspace/policy/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "userspace/model/utf8.h"

namespace stockade::policy {
namespace {

// Once a bound is reached it ignores the rest: the parser cannot be stopped without throwing.
class TreeBuilder final : public YAML::EventHandler {
  public:
    TreeBuilder(const std::string& file, std::vector<Diagnostic>& diagnostics)
        : file_(file), diagnostics_(diagnostics) {}

    std::vector<YamlPtr> TakeDocuments() { return std::move(documents_); }

    // yaml-cpp (0.7) eats nothing of a comma or a bracket that stands where a document may begin, and would give
    // empty documents for ever.
    bool stuck() const { return stuck_; }

    void OnDocumentStart(const YAML::Mark& mark) override {
        stuck_ = mark.pos == document_pos_;
        if (stuck_) return Stop(mark, "not YAML: this goes on with no list and no map");
        document_pos_ = mark.pos;
        stack_.clear();
        anchors_.clear();
        root_ = nullptr;
    }
    void OnDocumentEnd() override {
        if (root_ != nullptr && !stopped_) documents_.push_back(root_);
    }
    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        Leaf(mark, anchor, YamlNode::Kind::kNull, "", "?");
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& value) override {
        Leaf(mark, anchor, YamlNode::Kind::kScalar, value, tag);
    }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        if (stopped_) return;
        auto found = anchors_.find(anchor);
        if (found == anchors_.end()) return Stop(mark, "an alias cannot stand inside what it names");
        if (Count(mark, found->second.nodes)) Attach(found->second.node);
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        Open(mark, tag, anchor, YamlNode::Kind::kSequence);
    }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value) override {
        Open(mark, tag, anchor, YamlNode::Kind::kMap);
    }
    void OnSequenceEnd() override { Close(); }
    void OnMapEnd() override { Close(); }

  private:
    struct Frame {
        std::shared_ptr<YamlNode> node;
        YAML::anchor_t anchor = 0;
        size_t first_count = 0;  // nodes_ before it
    };
    struct Anchored {
        YamlPtr node;
        size_t nodes = 0;
    };

    std::shared_ptr<YamlNode> Make(const YAML::Mark& mark, YamlNode::Kind kind, const std::string& tag) {
        auto node = std::make_shared<YamlNode>();
        node->kind = kind;
        node->line = mark.line + 1;
        node->column = mark.column + 1;
        node->quoted = tag == "!";
        if (tag != "!" && tag != "?") node->tag = tag;
        return node;
    }

    void Leaf(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode::Kind kind, const std::string& value,
              const std::string& tag) {
        if (stopped_ || !Count(mark, 1)) return;
        auto node = Make(mark, kind, tag);
        node->value = value;
        if (anchor != 0) anchors_[anchor] = {node, 1};
        Attach(node);
    }

    void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
        if (stopped_ || !Count(mark, 1)) return;
        if (stack_.size() >= kMaxYamlDepth)
            return Stop(mark, absl::StrCat("nested deeper than ", kMaxYamlDepth, " levels"));
        stack_.push_back({Make(mark, kind, tag), anchor, nodes_ - 1});
    }

    void Close() {
        if (stopped_ || stack_.empty()) return;
        Frame frame = std::move(stack_.back());
        stack_.pop_back();
        if (frame.anchor != 0) anchors_[frame.anchor] = {frame.node, nodes_ - frame.first_count};
        Attach(frame.node);
    }

    void Attach(YamlPtr node) {
        if (stack_.empty()) {
            root_ = std::move(node);
        } else {
            stack_.back().node->items.push_back(std::move(node));
        }
    }

    bool Count(const YAML::Mark& mark, size_t more) {
        nodes_ += more;
        if (nodes_ <= kMaxYamlNodes) return true;
        Stop(mark, absl::StrCat("more than ", kMaxYamlNodes, " values, aliases counted each time"));
        return false;
    }

    void Stop(const YAML::Mark& mark, absl::string_view why) {
        stopped_ = true;
        diagnostics_.push_back({Severity::kError, {file_, mark.line + 1, mark.column + 1}, std::string(why)});
    }

    const std::string& file_;
    std::vector<Diagnostic>& diagnostics_;
    std::vector<YamlPtr> documents_;
    std::vector<Frame> stack_;
    std::map<YAML::anchor_t, Anchored> anchors_;
    YamlPtr root_;
    size_t nodes_ = 0;
    int document_pos_ = -1;
    bool stuck_ = false;
    bool stopped_ = false;
};

// The first line up to `last` (from 1) that a tab indents: what follows it is read as something else, and yaml-cpp
// complains of that.
std::optional<Position> FindTab(const std::string& file, const std::string& text, int last) {
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; number <= last && std::getline(lines, line); ++number) {
        const size_t tab = line.find('\t');
        if (tab < line.find_first_not_of(" \t")) return Position{file, number, static_cast<int>(tab) + 1};
    }
    return std::nullopt;
}

// What no YAML has (YAML 1.2.2, 5.1) and yaml-cpp lets pass: it would put a replacement character in the place of what is no
// UTF-8, and a pattern match something else.
std::optional<Diagnostic> FindBadCharacter(const std::string& file, absl::string_view text) {
    int line = 1, column = 1;
    while (!text.empty()) {
        const model::Utf8Char c = model::NextChar(text);
        const Position at{file, line, column};
        if (!c.valid) return Diagnostic{Severity::kError, at, "not UTF-8"};
        if (c.code < 0x20 && c.code != '\t' && c.code != '\n' && c.code != '\r') {
            return Diagnostic{Severity::kError, at,
                              absl::StrCat("a control character: in a text in double quotes it is written \\x", absl::Hex(static_cast<uint32_t>(c.code), absl::kZeroPad2))};
        }
        column = c.code == '\n' ? 1 : column + 1;
        line += c.code == '\n' ? 1 : 0;
        text.remove_prefix(c.bytes);
    }
    return std::nullopt;
}

}  // namespace

std::vector<YamlPtr> ReadYaml(const std::string& file, const std::string& text,
                              std::vector<Diagnostic>& diagnostics) {
    if (text.size() > kMaxYamlBytes) {
        diagnostics.push_back(
            {Severity::kError, {file, 0, 0}, absl::StrCat("larger than ", kMaxYamlBytes, " bytes")});
        return {};
    }
    if (std::optional<Diagnostic> bad = FindBadCharacter(file, text)) {
        diagnostics.push_back(*std::move(bad));
        return {};
    }
    TreeBuilder builder(file, diagnostics);
    // yaml-cpp reports everything by exceptions; none leaves this function.
    try {
        std::istringstream stream(text);
        YAML::Parser parser(stream);
        while (!builder.stuck() && parser.HandleNextDocument(builder)) {
        }
    } catch (const YAML::Exception& error) {
        if (std::optional<Position> tab = FindTab(file, text, error.mark.line + 1)) {
            diagnostics.push_back(
                {Severity::kError, *std::move(tab), "not YAML: a tab as indentation: use spaces"});
            return builder.TakeDocuments();
        }
        diagnostics.push_back({Severity::kError,
                               {file, error.mark.line + 1, error.mark.column + 1},
                               absl::StrCat("not YAML: ", error.msg)});
    } catch (const std::exception& error) {
        diagnostics.push_back({Severity::kError, {file, 0, 0}, absl::StrCat("not YAML: ", error.what())});
    }
    return builder.TakeDocuments();
}

absl::string_view KindName(YamlNode::Kind kind) {
    switch (kind) {
        case YamlNode::Kind::kNull:
            return "nothing";
        case YamlNode::Kind::kScalar:
            return "a text";
        case YamlNode::Kind::kSequence:
            return "a list";
        case YamlNode::Kind::kMap:
            return "a map";
    }
    return "";
}

}  // namespace stockade::policy
