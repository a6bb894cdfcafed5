from warm_integrations.core.paged import *
