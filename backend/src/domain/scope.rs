//! The scope of a webhook: the links whose events it receives.

use serde::Deserialize;

use crate::domain::change::Change;

/// The links whose events a webhook receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All links of the workspace.
    Workspace,
    /// The links with these ids.
    Links(Vec<String>),
    /// The links in these folders.
    Folders(Vec<String>),
}

/// The kinds of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ScopeKind {
    Workspace,
    Folders,
    Links,
}

/// The reason why the fields of a request are not a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidScope {
    #[error("Expected at least one id for this scope")]
    NoId(&'static str),
    #[error("Expected none without linkScope {kind}", kind = .1.name())]
    OtherKind(&'static str, ScopeKind),
}

/// The fields of a scope in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScopeInput {
    pub(crate) kind: Change<ScopeKind>,
    pub(crate) link_ids: Change<Vec<String>>,
    pub(crate) folder_ids: Change<Vec<String>>,
}

impl ScopeKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Folders => "folders",
            Self::Links => "links",
        }
    }
}

impl Scope {
    pub(crate) fn kind(&self) -> ScopeKind {
        match self {
            Self::Workspace => ScopeKind::Workspace,
            Self::Links(_) => ScopeKind::Links,
            Self::Folders(_) => ScopeKind::Folders,
        }
    }

    /// The links of the scope. Empty for scopes of another kind.
    pub(crate) fn link_ids(&self) -> &[String] {
        match self {
            Self::Links(ids) => ids,
            Self::Workspace | Self::Folders(_) => &[],
        }
    }

    /// The folders of the scope. Empty for scopes of another kind.
    pub(crate) fn folder_ids(&self) -> &[String] {
        match self {
            Self::Folders(ids) => ids,
            Self::Workspace | Self::Links(_) => &[],
        }
    }
}

impl InvalidScope {
    /// The invalid field.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::NoId(field) | Self::OtherKind(field, _) => field,
        }
    }
}

impl ScopeInput {
    /// The scope of a webhook that has the scope `present`.
    pub(crate) fn applied_to(&self, present: &Scope) -> Result<Scope, InvalidScope> {
        let kind = match self.kind {
            Change::Set(kind) => kind,
            Change::Clear => ScopeKind::Workspace,
            Change::Keep => present.kind(),
        };
        let ids = |field, of_kind, change: &Change<Vec<String>>, present: &[String]| {
            let ids = match change {
                Change::Set(ids) => ids.clone(),
                Change::Keep if kind == of_kind => present.to_vec(),
                Change::Keep | Change::Clear => Vec::new(),
            };
            match (kind == of_kind, ids.is_empty()) {
                (true, true) => Err(InvalidScope::NoId(field)),
                (false, false) => Err(InvalidScope::OtherKind(field, of_kind)),
                (true, false) | (false, true) => Ok(ids),
            }
        };
        let links = ids("linkIds", ScopeKind::Links, &self.link_ids, present.link_ids())?;
        let folders = ids("folderIds", ScopeKind::Folders, &self.folder_ids, present.folder_ids())?;
        Ok(match kind {
            ScopeKind::Workspace => Scope::Workspace,
            ScopeKind::Links => Scope::Links(links),
            ScopeKind::Folders => Scope::Folders(folders),
        })
    }
}
