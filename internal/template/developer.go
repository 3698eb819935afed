package template

import "strings"

// AdaptDeveloperRole gives the messages as vLLM 0.32 hands them to a template: where the template does not know the role "developer"
// and a message has it, that message becomes a system message without its tools, and all system messages are joined into one at the
// front if they are not one there already. The input is not changed.
func (t *Template) AdaptDeveloperRole(messages *List) *List {
	if t.SupportsDeveloperRole() {
		return messages
	}
	converted := false
	out := make([]Value, len(messages.items))
	for i, m := range messages.items {
		out[i] = m
		if d, ok := m.(*Dict); ok && role(d) == "developer" {
			d = d.without(func(key string, _ Value) bool { return key == "tools" })
			out[i], converted = d.Set("role", String("system")), true
		}
	}
	if !converted {
		return messages
	}
	return &List{joinSystem(out)}
}

func role(d *Dict) string {
	v, _ := d.Get("role")
	s, _ := v.(String)
	return string(s)
}

// joinSystem puts all system messages into one at the front.
func joinSystem(messages []Value) []Value {
	var texts []string
	var others []Value
	scattered := false
	for i, m := range messages {
		d, ok := m.(*Dict)
		if !ok || role(d) != "system" {
			others = append(others, m)
			continue
		}
		scattered = scattered || i > 0
		if s := systemText(d); s != "" {
			texts = append(texts, s)
		}
	}
	if !scattered {
		return messages
	}
	first := NewDict().Set("role", String("system")).Set("content", String(strings.Join(texts, "\n\n")))
	return append([]Value{first}, others...)
}

func systemText(d *Dict) string {
	v, _ := d.Get("content")
	parts, ok := v.(*List)
	if !ok {
		s, _ := v.(String)
		return string(s)
	}
	var texts []string
	for _, p := range parts.items {
		switch p := p.(type) {
		case String:
			texts = append(texts, string(p))
		case *Dict:
			if v, ok := p.Get("text"); ok {
				s, _ := v.(String)
				texts = append(texts, string(s))
			}
		}
	}
	return strings.Join(texts, "\n")
}
